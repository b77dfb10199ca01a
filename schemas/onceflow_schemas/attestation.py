"""The attestation: the bridge's word that it verified this body, for this topic, at this time.

Rule: whoever can write to the topic but does not hold a key can neither forge an event, nor move one to another
deployment or topic, nor change its age.  Every field goes in with its length before it, so that no two
different records have the same signed bytes.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Final, NamedTuple

VERSION = "v1"
SECRET_BYTES_MIN = 32
KEY_ID_PATTERN = re.compile(r"[A-Za-z0-9_\-]{1,64}")
_VERSION_PATTERN = re.compile(r"v[0-9]{1,4}")
_ATTESTATION_PARTS = 3
_TEXTS_REMEMBERED_MAX: Final = 1_024
"""Of deployments, topics, accounts, modes, types and endpoints; a text that is not remembered costs a microsecond."""


@dataclass(frozen=True, slots=True)
class AttestationKey:
    """A shared secret of bridge and processor.

    ``not_before``: records received earlier were not signed with it.  ``retired_at``: the bridge signs nothing
    received later with it.  ``revoked_before``: a leaked key; records received before it are refused too.
    """

    id: str
    secret: bytes = field(repr=False)
    not_before: datetime | None = None
    retired_at: datetime | None = None
    revoked_before: datetime | None = None


class Attested(NamedTuple):
    """The fields that an attestation covers, as they stand in the headers."""

    deployment: str
    topic: str
    account: str
    mode: str
    event_id: str
    type: str
    created: str
    received_at: str
    endpoint: str


def _with_length(part: bytes) -> bytes:
    return len(part).to_bytes(4, "big") + part


@lru_cache(maxsize=_TEXTS_REMEMBERED_MAX)
def _repeated(text: str) -> bytes:
    """The signed form of a text that many records share."""
    return _with_length(text.encode())


def _signed_bytes(fields: Attested, body_sha256: bytes) -> bytes:
    return b"".join(
        (
            _repeated(VERSION),
            _repeated(fields.deployment),
            _repeated(fields.topic),
            _repeated(fields.account),
            _repeated(fields.mode),
            _with_length(fields.event_id.encode()),
            _repeated(fields.type),
            _with_length(fields.created.encode()),
            _with_length(fields.received_at.encode()),
            _repeated(fields.endpoint),
            _with_length(body_sha256),
        )
    )


def _mac(fields: Attested, body_sha256: bytes, key: AttestationKey) -> str:
    mac = hmac.digest(key.secret, _signed_bytes(fields, body_sha256), "sha256")
    return base64.urlsafe_b64encode(mac).decode("ascii")


def sign(fields: Attested, body: bytes, *, key: AttestationKey) -> str:
    """Return the text of the header ``onceflow_attestation``."""
    return f"{VERSION} {key.id} {_mac(fields, hashlib.sha256(body).digest(), key)}"


def verify(
    header: str, *, fields: Attested, body_sha256: bytes, received_at: datetime, keys: Mapping[str, AttestationKey]
) -> str | None:
    """Check an attestation header against the record it came with.

    Args:
        header: the text of ``onceflow_attestation``.
        fields: what the record says of itself.
        body_sha256: the digest of its value, 32 bytes.
        received_at: the attested time of receipt, aware.
        keys: attestation keys by id.

    Returns:
        None when it holds, else the failure code (``unauthenticated``, ``unknown_key_id``, ``future_version``).
    """
    parts = header.split(" ")
    if len(parts) != _ATTESTATION_PARTS or not _VERSION_PATTERN.fullmatch(parts[0]):
        return "unauthenticated"
    if parts[0] != VERSION:
        return "future_version"
    key = keys.get(parts[1])
    if key is None:
        return "unknown_key_id"
    # Texts are compared, because base64 has several texts for the same bytes and only one of them is ours.
    right = parts[2].isascii() and hmac.compare_digest(parts[2], _mac(fields, body_sha256, key))
    return None if right and _in_lifetime(key, received_at) else "unauthenticated"


def _in_lifetime(key: AttestationKey, received_at: datetime) -> bool:
    if key.not_before is not None and received_at < key.not_before:
        return False
    if key.retired_at is not None and received_at > key.retired_at:
        return False
    return key.revoked_before is None or received_at >= key.revoked_before
