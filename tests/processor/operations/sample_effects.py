"""Handlers with one effect, for workers as processes."""

from __future__ import annotations

from onceflow_processor.handlers import Handlers
from onceflow_processor.operations.effect import Settled
from onceflow_processor.tx import Tx
from onceflow_schemas.operations.calls import StripeCall

handlers = Handlers()


@handlers.effect("refund")
def refund(charge: str, amount: int) -> StripeCall:
    return StripeCall.post("/v1/refunds", charge=charge, amount=amount)


@refund.settled
def told(settled: Settled, tx: Tx) -> None:
    tx.outcome(f"refund.{settled.state}", key=settled.subject, data={"refund": settled.external_id})
