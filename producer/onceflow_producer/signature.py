"""Verification of the Stripe-Signature header over the raw bytes of the body.

Rule: whatever the SDK refuses is refused here too, and besides it what the SDK lets through or trips over: times from
the future, non-ASCII headers, bodies that are not UTF-8, a header of ten thousand signatures.  The age is judged only
after the signature has proven itself, so a "stale" or "future" answer always means a clock or a replay, never noise
from a stranger.  Pure: the caller brings the time.

Sources: docs.stripe.com/webhooks#verify-manually; stripe-python ``_webhook.py``.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass

from onceflow_producer.endpoint_secrets import EndpointSecret
from onceflow_producer.refusal import Refusal

HEADER_BYTES_MAX = 4_096
"""Stripe sends 12 bytes of time and 68 per signature."""
ITEMS_MAX = 16
"""Every ``v1`` item costs comparisons; Stripe sends one per active secret."""

_TIMESTAMP = re.compile(rb"0|[1-9][0-9]{0,19}")
_SIGNATURE = re.compile(rb"[0-9a-f]{64}")
_ITEM = re.compile(rb"([A-Za-z0-9_]{1,32})=([\x21-\x2b\x2d-\x7e]{0,256})")


@dataclass(frozen=True, slots=True)
class SignatureHeader:
    """The parts of a well-formed header: the time as it was signed, and each ``v1`` signature in hex."""

    timestamp: bytes
    signatures: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Verified:
    """The body is authentic: ``endpoint`` names the secret that proved it, ``timestamp`` is in Unix seconds."""

    endpoint: str
    timestamp: int


def parse_header(values: Sequence[bytes]) -> SignatureHeader | Refusal:
    """Parse the values of all Stripe-Signature headers of one request (there must be exactly one)."""
    if not values or values == [b""]:
        return Refusal("missing_signature", "there is no Stripe-Signature header, or it is empty")
    if len(values) > 1:
        return _malformed(f"the header was sent {len(values)} times")
    value = values[0]
    if len(value) > HEADER_BYTES_MAX:
        return _malformed(f"the header has {len(value)} bytes; at most {HEADER_BYTES_MAX} are read")
    items = value.split(b",")
    if len(items) > ITEMS_MAX:
        return _malformed(f"the header has {len(items)} items; at most {ITEMS_MAX} are read")
    return _parse_items(items)


def _parse_items(items: list[bytes]) -> SignatureHeader | Refusal:
    timestamp: bytes | None = None
    signatures: list[bytes] = []
    for item in items:
        match = _ITEM.fullmatch(item)
        if match is None:
            return _malformed("an item is not a name, '=' and visible ASCII")
        name, value = match.groups()
        if name == b"v1":
            if _SIGNATURE.fullmatch(value) is None:
                return _malformed("a v1 signature is not 64 lower-case hex digits")
            signatures.append(value)
        elif name == b"t":
            if timestamp is not None:
                return _malformed("there are two times")
            if _TIMESTAMP.fullmatch(value) is None:
                return _malformed("the time is not a plain decimal number of at most 20 digits")
            timestamp = value
    if timestamp is None:
        return _malformed("there is no time")
    if not signatures:
        return _malformed("there is no v1 signature")
    return SignatureHeader(timestamp, tuple(signatures))


def verify(
    header: SignatureHeader,
    body: bytes,
    *,
    secrets: Sequence[EndpointSecret],
    now: float,
    tolerance_seconds: int,
) -> Verified | Refusal:
    """Check the signatures against each secret, then the signed time against both sides of the window.

    Args:
        header: as ``parse_header`` gave it.
        body: the raw bytes as received.
        secrets: those that may sign; during a rotation the old and the new one.
        now: this host's clock in Unix seconds.
        tolerance_seconds: how far the signed time may lie in the past or in the future; above 0.
    """
    endpoint = matching_endpoint(header, body, secrets=secrets)
    if endpoint is None:
        return Refusal("wrong_signature", "no signature matches: the raw body differs, or the secret is another one")
    timestamp = int(header.timestamp)
    skew_seconds = round(now) - timestamp
    if timestamp < now - tolerance_seconds:
        return Refusal("stale_timestamp", "the signed time lies too far in the past", skew_seconds)
    if timestamp > now + tolerance_seconds:
        return Refusal("future_timestamp", "the signed time lies in the future", skew_seconds)
    return Verified(endpoint, timestamp)


def matching_endpoint(header: SignatureHeader, body: bytes, *, secrets: Sequence[EndpointSecret]) -> str | None:
    """Return the id of the first secret that a signature proves, whatever its age."""
    signed = b"%b.%b" % (header.timestamp, body)
    for secret in secrets:
        expected = hmac.digest(secret.secret, signed, hashlib.sha256).hex().encode("ascii")
        for signature in header.signatures:
            if hmac.compare_digest(expected, signature):
                return secret.id
    return None


def _malformed(detail: str) -> Refusal:
    return Refusal("malformed_signature", detail)
