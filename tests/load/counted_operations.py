"""The counted payments, two effects, and a row in a table of the user's own for every settled state.

Rule: the table has no key, so a callback that runs twice is seen twice.
"""

from __future__ import annotations

from onceflow import Event, Settled, Tx, effects
from tests.load.counted_payments import handlers

SETTLEMENT_TABLE = "shop.settlement"

take_card = handlers.use(effects.charge, name="take_card")
give_part_back = handlers.use(effects.refund, name="give_part_back")

__all__ = ["give_part_back", "handlers", "take_card"]


@handlers.on("payment_intent.succeeded")
def give_back_where_asked(event: Event, tx: Tx) -> None:
    """Ask for an operation because of an event, where the payment's metadata say so."""
    intent = event.object
    if (intent.get("metadata") or {}).get("give_back"):
        tx.request(
            give_part_back, subject=intent["id"], charge=intent["latest_charge"], amount=intent["amount_received"]
        )


@take_card.settled
@give_part_back.settled
def note_settlement(settled: Settled, tx: Tx) -> None:
    """Write the user's row and the outcome."""
    tx.execute("INSERT INTO shop.settlement (operation, state) VALUES (%s, %s)", [settled.id, settled.state])
    tx.outcome(
        f"{settled.effect}.{settled.state}", key=settled.subject, data={"operation": settled.id, "state": settled.state}
    )
