"""Whether a second delivery of an event says something else than the first.

Rule: the first one counts.  Stripe renders one event in the API version of each endpoint and lets the count of pending
deliveries change, so neither difference is a conflict; any other is told to a person, with the bytes.
"""

from __future__ import annotations

import hashlib
import re

from onceflow_processor.inputs.rendering import digest_of, is_rendering

PENDING_WEBHOOKS_MAX = 32
"""How many values of pending_webhooks are tried; Stripe allows 16 destinations an account."""

_PENDING = re.compile(rb'("pending_webhooks":\s*)\d{1,3}')


def is_conflict(
    body: bytes, *, digest: bytes, api_version: str | None, first_digest: bytes, first_api_version: str | None
) -> bool:
    """Return True when a body contradicts the first one of the same identity.

    Args:
        body: the later body.
        digest: its SHA-256, or the digest of what it says where its bytes are not Stripe's own.
        api_version: its API version.
        first_digest: the digest of the first body, of either kind.
        first_api_version: the API version of the first body.
    """
    if digest == first_digest or api_version != first_api_version:
        return False
    if is_rendering(first_digest):
        return digest_of(body) != first_digest
    if is_rendering(digest):
        # Of the first there is only the digest of its bytes, and a bus has written these anew.
        return False
    found = _PENDING.search(body)
    if found is None:
        return True
    head, tail = body[: found.end(1)], body[found.end() :]
    return all(
        hashlib.sha256(b"%b%d%b" % (head, count, tail)).digest() != first_digest
        for count in range(PENDING_WEBHOOKS_MAX + 1)
    )
