"""A digest of what an event says, for bytes that Stripe did not write.

Rule: a bus may write an event with other white space or another order of keys, and the same event may come as Stripe
wrote it; neither is other content.  So two digests are compared only where both are of the same kind, which their lengths
tell: 32 bytes for Stripe's own bytes, 33 for this.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import orjson

from onceflow_schemas.strict_json import read_strictly

RENDERING_DIGEST_BYTES = 33
_KIND = b"\x01"


def rendering_digest(event: Any) -> bytes:
    """Return the digest of a parsed event, without the count of pending deliveries, which Stripe lets change."""
    told = (
        {name: value for name, value in event.items() if name != "pending_webhooks"}
        if isinstance(event, dict)
        else event
    )
    try:
        written = orjson.dumps(told, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        written = json.dumps(told, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
    return _KIND + hashlib.sha256(written).digest()


def is_rendering(digest: bytes) -> bool:
    """Tell whether a digest is of what an event says, and not of its bytes."""
    return len(digest) == RENDERING_DIGEST_BYTES


def digest_of(body: bytes) -> bytes:
    """Return the digest of what a body says."""
    return rendering_digest(read_strictly(body).value)
