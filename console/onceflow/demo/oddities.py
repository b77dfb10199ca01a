"""Ten bodies that are validly signed and odd all the same, each with what must become of it.

Rule: after a valid signature nothing is refused.  What can be read is processed although a database cannot hold its
characters; what cannot be read the same way by everybody is kept for a person, bytes and all.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from onceflow.demo.stripe_objects import API_VERSION, new_id

DEEP_LEVELS = 2_000


@dataclass(frozen=True, slots=True)
class Oddity:
    """An odd body; ``code`` is the failure code that it is quarantined with, None when it is processed."""

    name: str
    body: bytes
    code: str | None


def oddities(random: Random, *, created: int) -> list[Oddity]:
    """Return the ten oddities with new ids."""

    def payment(**changes: Any) -> dict[str, Any]:
        intent = {"id": new_id("pi", random), "object": "payment_intent", "amount": 4_200, "currency": "eur"}
        event: dict[str, Any] = {
            "id": new_id("evt", random),
            "object": "event",
            "api_version": API_VERSION,
            "created": created,
            "data": {"object": intent | {"customer": None, "metadata": {}, "status": "succeeded"}},
            "livemode": False,
            "request": None,
            "type": "payment_intent.succeeded",
        }
        return event | changes

    def with_object(**changes: Any) -> dict[str, Any]:
        event = payment()
        event["data"]["object"] |= changes
        return event

    doubled = _dump(payment())
    return [
        Oddity("NUL in metadata", _dump(with_object(metadata={"note": "a\x00b"})), None),
        Oddity("lone surrogate in a description", _dump(with_object(description="half \ud83d of an emoji")), None),
        Oddity("the same key twice", doubled.replace(b'{"id"', b'{"id":"evt_other","id"', 1), "duplicate_key"),
        Oddity("null", b"null", "not_an_event"),
        Oddity("no JSON at all", b"hello from a validly signed stranger", "not_json"),
        Oddity("2,000 nested arrays", _deep(payment), "too_deep"),
        Oddity(
            "Latin-1 instead of UTF-8",
            _dump(payment(), ensure_ascii=False, note="Jürgen").decode().encode("latin-1"),
            "not_utf8",
        ),
        Oddity("an escape sequence in the id", _dump(payment(id="evt_x\x1b[2J")), "bad_event_id"),
        Oddity("NaN as amount", _dump(with_object(amount=float("nan"))), "bad_number"),
        Oddity("live mode at a test endpoint", _dump(payment(livemode=True)), "other_mode"),
    ]


def _dump(event: dict[str, Any], *, ensure_ascii: bool = True, **more: Any) -> bytes:
    return json.dumps(event | more, ensure_ascii=ensure_ascii, separators=(",", ":")).encode()


def _deep(payment: Callable[..., dict[str, Any]]) -> bytes:
    """Nested as text: the standard library could not write it without recursion."""
    return _dump(payment(request="DEEP")).replace(b'"DEEP"', b"[" * DEEP_LEVELS + b"]" * DEEP_LEVELS)
