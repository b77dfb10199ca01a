"""The shipped example, and a row in a table of the user's own for every event that was processed.

Rule: the table has no key, so an effect that happens twice is seen twice.  A mark in the object's metadata makes the
handler fail, so that a test can send good events whose handler is bad.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import suppress
from copy import deepcopy

from onceflow import Event, Tx
from onceflow.examples import payments

EFFECT_TABLE = "shop.effect"
TYPES = (
    "payment_intent.succeeded",
    "payment_intent.payment_failed",
    "charge.refunded",
    "invoice.paid",
    "customer.subscription.*",
    "charge.dispute.*",
)

_tries: Counter[str] = Counter()

# A copy: other tests of the same process look at the example as it is shipped.
handlers = deepcopy(payments.handlers)

__all__ = ["handlers"]


@handlers.on(*TYPES)
def note_effect(event: Event, tx: Tx) -> None:
    """Write the user's row, then fail as the event asks for."""
    tx.execute("INSERT INTO shop.effect (event_id) VALUES (%s)", [event.id])
    asked = (event.object.get("metadata") or {}).get("handler")
    _raise(event, asked)
    _misuse(event, tx, asked)


def _raise(event: Event, asked: str | None) -> None:
    match asked:
        case "fails twice":
            _tries[event.id] += 1
            if _tries[event.id] <= 2:
                raise RuntimeError("not yet")
        case "fails always":
            raise RuntimeError("never")
        case "says what it saw":
            raise RuntimeError(f"cannot greet {event.object['description']}")
        case "kills the process":
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            pass


def _misuse(event: Event, tx: Tx, asked: str | None) -> None:
    match asked:
        case "sends it to the database":
            tx.execute("SELECT %s::int", [event.object["description"]])
        case "swallows its own SQL error":
            with suppress(Exception):
                tx.execute("INSERT INTO shop.no_such_table VALUES (1)")
        case "commits":
            tx.connection.commit()
        case "rolls back":
            tx.connection.rollback()
        case "a large outcome":
            tx.outcome("payment.large", key=event.id, data={"text": "x" * 2_000_000})
        case _:
            pass
