"""Stripe's webhook signature: HMAC-SHA256 over the time and the body, one ``v1`` per secret that is in force.

Rule: written from the scheme and not from the product, so that each judges the other.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable


def signature_header(body: bytes, *, at: int, secrets: Iterable[str]) -> str:
    """The header ``Stripe-Signature`` of a body sent at this second."""
    signed = str(at).encode() + b"." + body
    parts = [hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest() for secret in secrets]
    return ",".join([f"t={at}", *(f"v1={part}" for part in parts)])
