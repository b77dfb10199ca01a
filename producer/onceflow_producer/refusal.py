"""Which status each refusal has, and its answer, made once at import.

Rule: 4xx blames the sender and 503 means that we cannot take the event now; there is no other 5xx but the one for a
bug.  The list is fixed, so that codes may be metric labels, and an answer never repeats anything that was sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from onceflow_schemas.failure import FAILURES

RETRY_AFTER_SECONDS = 5
"""Stripe keeps to its own schedule; this is for other senders and for proxies."""

STATUS_OF: Mapping[str, int] = {
    "missing_signature": 400,
    "malformed_signature": 400,
    "wrong_signature": 400,
    "stale_timestamp": 400,
    "future_timestamp": 400,
    "empty_body": 400,
    "body_incomplete": 400,
    "not_found": 404,
    "unknown_endpoint": 404,
    "method_not_allowed": 405,
    "body_timeout": 408,
    "body_too_large": 413,
    "record_too_large": 413,
    "content_encoding": 415,
    "too_many_invalid": 429,
    "headers_too_large": 431,
    "internal_error": 500,
    "broker_unavailable": 503,
    "broker_timeout": 503,
    "broker_refused": 503,
    "topic_missing": 503,
    "queue_full": 503,
    "attestation_key_missing": 503,
}

COUNTS_AS_INVALID = frozenset(
    {
        "missing_signature",
        "malformed_signature",
        "wrong_signature",
        "stale_timestamp",
        "future_timestamp",
        "empty_body",
        "body_incomplete",
        "body_timeout",
        "body_too_large",
        "content_encoding",
        "headers_too_large",
    }
)
"""What costs the sender a token of its rate: faults of a POST found before or by the verification."""

_EXTRA_HEADERS: Mapping[str, list[tuple[bytes, bytes]]] = {
    "method_not_allowed": [(b"allow", b"POST")],
    "too_many_invalid": [(b"retry-after", b"%d" % RETRY_AFTER_SECONDS)],
    # The rest of a late body is not worth waiting for.
    "body_timeout": [(b"connection", b"close")],
    "headers_too_large": [(b"connection", b"close")],
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that is not taken.

    Attributes:
        code: a key of ``STATUS_OF``.
        detail: one sentence for the log, without any part of header, body or secret.
        skew_seconds: only for signed times outside the window: this host's clock minus the signed time.
    """

    code: str
    detail: str
    skew_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The two ASGI messages of a whole response."""

    status: int
    start: dict[str, Any]
    body: dict[str, Any]


def json_answer(status: int, document: bytes, *, headers: list[tuple[bytes, bytes]] | None = None) -> Answer:
    """Return the answer with this JSON text as its body."""
    start = {
        "type": "http.response.start",
        "status": status,
        "headers": [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(document)),
            *(headers or ()),
        ],
    }
    return Answer(status, start, {"type": "http.response.body", "body": document})


def refusal_document(code: str) -> bytes:
    """Return the body ``{"error": {"code", "message", "hint"}}`` of a refusal."""
    kind = FAILURES[code]
    return orjson.dumps({"error": {"code": code, "message": kind.meaning, "hint": kind.hint}})


def _refusal_answer(code: str, status: int) -> Answer:
    headers = list(_EXTRA_HEADERS.get(code, ()))
    if status == 503:  # noqa: PLR2004 - the one status whose meaning is "later"
        headers.append((b"retry-after", b"%d" % RETRY_AFTER_SECONDS))
    return json_answer(status, refusal_document(code), headers=headers)


REFUSAL_ANSWERS: Mapping[str, Answer] = {code: _refusal_answer(code, status) for code, status in STATUS_OF.items()}
