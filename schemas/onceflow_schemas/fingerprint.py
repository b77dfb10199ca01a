"""The fingerprint of a record: enough to tell whether the log still holds what was read from it.

Rule: progress names the record before its next offset by this text, and a take-over compares it with the log
before it trusts the offset.
"""

from __future__ import annotations

import hashlib

_ABSENT = b"\x00"
_PRESENT = b"\x01"


def record_fingerprint(*, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None) -> str:
    """Return ``<offset> <timestamp in ms> <sha256 of key and value>``."""
    digest = hashlib.sha256()
    for part in (key, value):
        if part is None:
            digest.update(_ABSENT)
        else:
            digest.update(_PRESENT + len(part).to_bytes(8, "big"))
            digest.update(part)
    return f"{offset} {timestamp_ms} {digest.hexdigest()}"
