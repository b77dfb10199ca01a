"""What the headers of a webhook request say, before a byte of its body is read.

Rule: everything that can be refused by looking at the headers is refused here, so that it costs no memory.  A
compressed body is refused and never inflated: a bomb of 10 kB may hold 10 GB.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from onceflow_producer.refusal import Refusal

HEADERS_MAX = 100
HEADERS_BYTES_MAX = 32_768
_DECLARED_DIGITS_MAX = 18

_WANTED = frozenset({b"stripe-signature", b"content-length", b"content-encoding", b"traceparent"})


@dataclass(frozen=True, slots=True)
class RequestHead:
    """``declared_bytes`` is the Content-Length, None for a chunked body; the others are all values of one header."""

    signatures: list[bytes]
    traceparents: list[bytes]
    declared_bytes: int | None


def read_head(headers: Iterable[tuple[bytes, bytes]], *, body_bytes_max: int) -> RequestHead | Refusal:
    """Read the headers of a request (names in lower case, as ASGI gives them)."""
    signatures: list[bytes] = []
    traceparents: list[bytes] = []
    declared: bytes | None = None
    encoded = False
    count = size = 0
    for name, value in headers:
        count += 1
        size += len(name) + len(value)
        if name not in _WANTED:
            continue
        if name == b"stripe-signature":
            signatures.append(value)
        elif name == b"content-length":
            declared = value
        elif name == b"traceparent":
            traceparents.append(value)
        else:
            encoded = encoded or value.strip().lower() not in {b"", b"identity"}
    if count > HEADERS_MAX or size > HEADERS_BYTES_MAX:
        return Refusal("headers_too_large", f"{count} headers of {size} bytes")
    if encoded:
        return Refusal("content_encoding", "the body is compressed")
    declared_bytes = _declared_bytes(declared)
    if isinstance(declared_bytes, Refusal):
        return declared_bytes
    if declared_bytes is not None and declared_bytes > body_bytes_max:
        return Refusal("body_too_large", f"{declared_bytes} bytes were announced; the limit is {body_bytes_max}")
    return RequestHead(signatures, traceparents, declared_bytes)


def _declared_bytes(declared: bytes | None) -> int | Refusal | None:
    if declared is None:
        return None
    if not declared.isdigit():
        return Refusal("body_incomplete", "Content-Length is not a number")
    if len(declared) > _DECLARED_DIGITS_MAX:
        return Refusal("body_too_large", "Content-Length has too many digits")
    return int(declared)
