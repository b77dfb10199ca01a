"""Operations as a worker would read them: a refund and a charge, frozen as they are asked for."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from onceflow_schemas.operations.calls import Call, Charge, StripeCall
from onceflow_schemas.operations.freeze import freeze
from onceflow_schemas.operations.operation import Operation, State, Step

ID = UUID("6d0a7f0e-1111-5222-8333-444444444444")
ASKED = datetime(2026, 1, 1, 12, tzinfo=UTC)
CREATE, CONFIRM, CANCEL = 0, 1, 2


def operation(call: Call, *, step: int = 0, **changes: Any) -> tuple[Step, Operation]:
    """The step and its operation."""
    made = Operation(
        id=ID,
        account="acct_1",
        mode="test",
        effect="e",
        subject="s",
        occurrence=1,
        order_key=None,
        args={},
        state=State.SENDING,
        steps=freeze(call, operation_id=ID),
        step=step,
        api_version="2026-10-28.endive",
        requested_at=ASKED,
        window_from=ASKED,
    )
    made = replace(made, **changes)
    return made.present, made


def refund() -> tuple[Step, Operation]:
    """500 of ch_1 back."""
    return operation(StripeCall.refund(charge="ch_1", amount=500))


def charge(step: int) -> tuple[Step, Operation]:
    """The given step of a charge of 12.34; after the first one the intent is known."""
    call = Charge(amount=1234, currency="usd", payment_method="pm_1", customer="cus_1", off_session=True)
    return operation(call, step=step, external_id=None if step == CREATE else "pi_1")


def refund_object(**changes: Any) -> dict[str, Any]:
    """What Stripe says about the refund."""
    told = {"id": "re_1", "object": "refund", "amount": 500, "currency": "usd", "charge": "ch_1", "status": "succeeded"}
    return {**told, "created": 1767268800, "metadata": {"onceflow_operation": str(ID)}, **changes}


def intent_object(**changes: Any) -> dict[str, Any]:
    """What Stripe says about the charge's intent."""
    told = {"id": "pi_1", "object": "payment_intent", "amount": 1234, "currency": "usd", "customer": "cus_1"}
    return {
        **told,
        "status": "succeeded",
        "amount_received": 1234,
        "capture_method": "automatic",
        "last_payment_error": None,
        "latest_charge": "ch_9",
        "metadata": {"onceflow_operation": str(ID)},
        **changes,
    }
