"""Operations and objects that the tests of decisions start from."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from onceflow_schemas.operations.calls import Call, Charge, HttpCall, Mail, StripeCall
from onceflow_schemas.operations.freeze import freeze
from onceflow_schemas.operations.operation import Operation, Policy, State

ID = UUID("0f9f2b2e-60a5-5c0b-9b8e-6f0f5a2d7a11")
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)

REFUND = StripeCall.refund(charge="ch_1", amount=500, currency="usd")
CAPTURE = StripeCall.capture("pi_7", amount_to_capture=900)
CHARGE = Charge(amount=1099, currency="usd", payment_method="pm_1", customer="cus_1")
OFF_SESSION = replace(CHARGE, off_session=True)
MAIL = Mail(sender="shop@example.com", to="ada@example.com", subject="Thank you", text="It is on its way.")
RAW = StripeCall.post("/v1/invoices/in_1/send")

STEP_OF = {"create": 0, "confirm": 1, "cancel": 2}


def http(policy: Policy, *, lookup: bool = False) -> HttpCall:
    address = "https://stock.example.com/taken/{key}" if lookup else None
    return HttpCall(url="https://stock.example.com/take", json={"item": 7}, policy=policy, lookup=address)


def operation(call: Call = REFUND, *, step: str = "call", **fields: Any) -> Operation:
    """An operation of that call, asked for at ``NOW`` when nothing else is said."""
    asked: dict[str, Any] = {
        "id": ID,
        "account": "acct_1",
        "mode": "test",
        "effect": "pay",
        "subject": "order-1",
        "occurrence": 1,
        "order_key": None,
        "args": {},
        "state": State.REQUESTED,
        "steps": freeze(call, operation_id=ID),
        "step": STEP_OF.get(step, 0),
        "api_version": "2026-10-28.endive",
        "requested_at": NOW,
        "window_from": NOW,
    }
    return Operation(**(asked | fields))


def intent(status: str, **fields: Any) -> dict[str, Any]:
    """A payment intent of ``CHARGE`` as Stripe shows it."""
    shown: dict[str, Any] = {
        "id": "pi_1",
        "object": "payment_intent",
        "livemode": False,
        "status": status,
        "amount": 1099,
        "amount_received": 1099 if status == "succeeded" else 0,
        "currency": "usd",
        "customer": "cus_1",
        "capture_method": "automatic_async",
        "created": 1_772_366_400,
        "last_payment_error": None,
        "metadata": {"onceflow_operation": str(ID)},
    }
    return shown | fields


def refund(status: str | None, **fields: Any) -> dict[str, Any]:
    """A refund of ``REFUND`` as Stripe shows it."""
    shown: dict[str, Any] = {
        "id": "re_1",
        "object": "refund",
        "status": status,
        "amount": 500,
        "currency": "usd",
        "charge": "ch_1",
        "payment_intent": "pi_9",
        "created": 1_772_366_400,
        "metadata": {"onceflow_operation": str(ID)},
    }
    return shown | fields
