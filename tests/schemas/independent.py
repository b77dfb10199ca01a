"""The published forms once more, from docs/reference/records.md and with the standard library only.

Rule: it imports nothing of the product, so that a mistake in one place cannot hide in the other.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import uuid
from collections.abc import Sequence
from typing import Any

NAMESPACE = uuid.UUID("6f1a2f0e-5a43-5d0c-9a3e-0d6f6e636566")
_32_BITS = 2**32


def json_name(parts: Sequence[str | int]) -> str:
    """The name of a uuid5: a JSON array without spaces."""
    return json.dumps(list(parts), separators=(",", ":"), ensure_ascii=False)


def outcome_id(vector: dict[str, Any]) -> str:
    name = json_name(["outcome", vector["cause"], vector["handler"], vector["type"], vector["key"], vector["n"]])
    return str(uuid.uuid5(NAMESPACE, name))


def operation_id(vector: dict[str, Any]) -> str:
    parts = ("account", "mode", "effect", "subject", "occurrence")
    return str(uuid.uuid5(NAMESPACE, json_name(["operation", *(vector[name] for name in parts)])))


def revision_id(outcome: str, revision: int) -> str:
    return outcome if revision == 1 else str(uuid.uuid5(NAMESPACE, json_name(["revision", outcome, revision])))


def murmur2(data: bytes) -> int:
    """Kafka's hash, byte by byte, as an unsigned number of 32 bits."""
    state = 0x9747B28C ^ len(data)
    left = list(data)
    while len(left) >= 4:
        word = (left[0] | left[1] << 8 | left[2] << 16 | left[3] << 24) * 0x5BD1E995 % _32_BITS
        word = (word ^ word >> 24) * 0x5BD1E995 % _32_BITS
        state = state * 0x5BD1E995 % _32_BITS ^ word
        del left[:4]
    if left:
        for place, byte in enumerate(left):
            state ^= byte << 8 * place
        state = state * 0x5BD1E995 % _32_BITS
    state = (state ^ state >> 13) * 0x5BD1E995 % _32_BITS
    return state ^ state >> 15


def lane_of(key: str, lane_count: int) -> int:
    return murmur2(key.encode()) % 2**31 % lane_count


def signed_bytes(vector: dict[str, Any]) -> bytes:
    """What an attestation signs, from the headers of a record and from where it stands."""
    headers = dict(vector["headers"])
    _, _, account, mode = headers["ce_source"].split(":")
    fields = [
        b"v1",
        vector["deployment"].encode(),
        vector["topic"].encode(),
        account.encode(),
        mode.encode(),
        headers["ce_id"].encode(),
        headers["ce_type"].removeprefix("com.stripe.").encode(),
        headers.get("ce_time", "").encode(),
        headers["onceflow_received_at"].encode(),
        headers["onceflow_endpoint"].encode(),
        hashlib.sha256(base64.b64decode(vector["value_base64"])).digest(),
    ]
    return b"".join(len(field).to_bytes(4, "big") + field for field in fields)


def attestation(vector: dict[str, Any]) -> str:
    mac = hmac.new(bytes.fromhex(vector["secret_hex"]), signed_bytes(vector), hashlib.sha256).digest()
    return f"v1 {vector['key_id']} {base64.urlsafe_b64encode(mac).decode()}"


def canonical_value(data: Any) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def fingerprint(vector: dict[str, Any]) -> str:
    hashed = b""
    for part in (vector["key_hex"], vector["value_hex"]):
        data = b"" if part is None else bytes.fromhex(part)
        hashed += b"\x00" if part is None else b"\x01" + len(data).to_bytes(8, "big") + data
    return f"{vector['offset']} {vector['timestamp_ms']} {hashlib.sha256(hashed).hexdigest()}"
