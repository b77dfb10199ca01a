"""Reads the attestation keys of the settings.

Rule: bridge and processor read the same text into the same bytes, whatever form the secret has, and no fault
repeats a part of a secret.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from datetime import UTC, datetime
from typing import Any

from onceflow_schemas.attestation import KEY_ID_PATTERN, SECRET_BYTES_MIN, AttestationKey

KEYS_MAX = 32
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})+")
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+={0,2}")
_TIMES = ("not_before", "retired_at", "revoked_before")
_NAMES = ("id", "secret", *_TIMES)


def parse_keys(value: Any) -> tuple[AttestationKey, ...]:
    """Read ``id=secret,id2=secret2``, or a list of tables with the fields of ``AttestationKey``, also as JSON text.

    Raises:
        ValueError: every fault found, one per line.
    """
    entries = _entries(value)
    if len(entries) > KEYS_MAX:
        raise ValueError(f"has {len(entries)} keys; at most {KEYS_MAX} are allowed")
    faults: list[str] = []
    keys: list[AttestationKey] = []
    for position, entry in enumerate(entries, start=1):
        found = _faults_of(entry)
        if any(entry.get("id") == known.id for known in keys):
            found.append("repeats the id of an earlier key")
        if found:
            faults += [f"key {position} {fault}" for fault in found]
            continue
        times = {name: _time(entry[name]) for name in _TIMES if entry.get(name) is not None}
        keys.append(AttestationKey(entry["id"], secret_bytes(entry["secret"]), **times))
    if faults:
        raise ValueError("\n".join(faults))
    return tuple(keys)


def secret_bytes(text: str) -> bytes:
    """Return the bytes of a secret: hex, else base64url, where they give enough bytes; else the text itself."""
    if _HEX.fullmatch(text) and len(text) // 2 >= SECRET_BYTES_MIN:
        return bytes.fromhex(text)
    if _BASE64URL.fullmatch(text):
        bare = text.rstrip("=")
        try:
            decoded = base64.urlsafe_b64decode(bare + "=" * (-len(bare) % 4))
        except binascii.Error:
            decoded = b""
        if len(decoded) >= SECRET_BYTES_MIN:
            return decoded
    return text.encode()


def _entries(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError("begins as JSON but is none") from None
    if isinstance(value, str):
        parts = [part.strip().partition("=") for part in value.split(",") if part.strip()]
        return [{"id": name.strip(), "secret": secret.strip()} for name, _, secret in parts]
    if isinstance(value, list | tuple) and all(isinstance(entry, dict) for entry in value):
        return list(value)
    raise ValueError("must be id=secret,id2=secret2 or a list of tables")


def _faults_of(entry: dict[str, Any]) -> list[str]:
    faults = [f"has an unknown field {name!r}; known are {', '.join(_NAMES)}" for name in entry if name not in _NAMES]
    name, secret = entry.get("id"), entry.get("secret")
    if not isinstance(name, str) or not KEY_ID_PATTERN.fullmatch(name):
        faults.append("has an id that is not 1 to 64 letters, digits, dashes and underscores")
    if not isinstance(secret, str) or not secret.strip():
        faults.append("has no secret")
    elif len(secret_bytes(secret.strip())) < SECRET_BYTES_MIN:
        faults.append(
            f"has a secret of {len(secret_bytes(secret.strip()))} bytes; at least {SECRET_BYTES_MIN} are needed"
        )
    for field in _TIMES:
        try:
            _time(entry.get(field))
        except ValueError:
            faults.append(f"has a {field} that is not an RFC 3339 time with its zone")
    return faults


def _time(value: Any) -> datetime | None:
    return None if value is None else zoned_time(value)


def zoned_time(value: Any) -> datetime:
    """Return the instant that a person wrote: RFC 3339 text, or a time as TOML has it; a zone is required.

    Raises:
        ValueError: it is no time, or has no zone.
    """
    moment = datetime.fromisoformat(value.strip()) if isinstance(value, str) else value
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise ValueError("not a time with its zone")
    return moment.astimezone(UTC)
