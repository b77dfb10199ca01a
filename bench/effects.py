"""The effects of the bench: the same refund, with and without a settled callback, and a handler that asks for it.

Rule: an effect is one call, which the simulator carries out; the callback asks for one outcome.
"""

from __future__ import annotations

from onceflow import Event, Handlers, Settled, StripeCall, Tx

AMOUNT = 1
EVENT_TYPE = "charge.succeeded"
handlers = Handlers()


def _call(charge: str) -> StripeCall:
    return StripeCall.refund(charge=charge, amount=AMOUNT)


@handlers.effect("bench_refund")
def refund(charge: str) -> StripeCall:
    """Give the smallest amount back."""
    return _call(charge)


@handlers.effect("bench_refund_told")
def refund_told(charge: str) -> StripeCall:
    """Do the same, and be told of its end."""
    return _call(charge)


@refund_told.settled
def tell(settled: Settled, tx: Tx) -> None:
    """Ask for one outcome."""
    tx.outcome("bench.refunded", key=settled.subject, data={"refund": settled.external_id, "state": settled.state})


@handlers.on(EVENT_TYPE, name="bench")
def ask(event: Event, tx: Tx) -> None:
    """Ask for a refund of the event's charge."""
    tx.request(refund, subject=event.id, charge=event.object["id"])
