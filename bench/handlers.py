"""The handlers of the bench: the same small work on every side, for every type of the bodies.

Rule: a handler reads the object and asks for one outcome; the other registries add exactly what their figure is about.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.bodies import key_id
from bench.statements import statements
from onceflow import Event, Handlers, Tx

TYPES = (
    "balance.*",
    "charge.*",
    "customer.*",
    "invoice.*",
    "payment_intent.*",
    "payment_method.*",
    "payout.*",
    "refund.*",
)
OUTCOME_TYPE = "bench.seen"
FAILING_ONE_IN = 100
POISONED = key_id(0).encode()
_EFFECT = statements("handlers")["effect"]


def key_of(event_object: dict[str, Any], event_id: str) -> str:
    """Return the outcome's key: the object's id (a balance has none)."""
    return str(event_object.get("id") or event_id)


def data_of(event_object: dict[str, Any], event_id: str) -> dict[str, Any]:
    """Return the outcome's data."""
    return {
        "amount": event_object.get("amount"),
        "currency": event_object.get("currency"),
        "customer": event_object.get("customer"),
        "event": event_id,
        "object": event_object.get("object"),
    }


def number_of(event_id: str) -> int:
    """Return the number at the end of an event id of the bench."""
    return int(event_id[-8:])


def see(event: Event, tx: Tx) -> None:
    """Ask for one outcome."""
    found = event.object
    tx.outcome(OUTCOME_TYPE, key=key_of(found, event.id), data=data_of(found, event.id))


def see_and_write(event: Event, tx: Tx) -> None:
    """Run one SQL statement and ask for one outcome."""
    tx.execute(_EFFECT, [event.id, event.object.get("amount") or 0])
    see(event, tx)


def see_and_claim(event: Event, tx: Tx) -> None:
    """Claim a fact and ask for one outcome, whether the fact was free or not."""
    tx.once("bench", event.id)
    see(event, tx)


def see_or_fail(event: Event, tx: Tx) -> None:
    """Ask for one outcome, and fail for one event in a hundred."""
    if number_of(event.id) * 2_654_435_761 % 2**32 % FAILING_ONE_IN == 0:
        raise ValueError("one in a hundred")
    see(event, tx)


def see_unless_poisoned(event: Event, tx: Tx) -> None:
    """Ask for one outcome, and fail for every event of one key: each of them needs a person."""
    if POISONED in event.raw:
        raise ValueError("poisoned")
    see(event, tx)


def see_unless_away(event: Event, tx: Tx) -> None:
    """Ask for one outcome, and fail for every event of one key in a way that is tried again by itself."""
    if POISONED in event.raw:
        raise ConnectionError("poisoned")
    see(event, tx)


def _registry(function: Callable[[Event, Tx], None], **options: Any) -> Handlers:
    made = Handlers()
    made.on(*TYPES, name="bench", **options)(function)
    return made


plain = _registry(see)
with_sql = _registry(see_and_write)
claiming = _registry(see_and_claim, facts=lambda event: [("bench", event.id)])
claiming_undeclared = _registry(see_and_claim)
failing = _registry(see_or_fail)
poisoned = _registry(see_unless_poisoned)
away = _registry(see_unless_away)
