"""Operations as values, for the tests of what is pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from onceflow_processor.operations.rows import Claimed
from onceflow_schemas.operations.calls import Call, Charge, StripeCall
from onceflow_schemas.operations.freeze import freeze
from onceflow_schemas.operations.operation import Operation, State

NOW = datetime(2026, 1, 2, tzinfo=UTC)
ID = UUID("86c1a4b6-a3da-5957-a919-812ada3bd102")
REFUND = StripeCall.post("/v1/refunds", charge="ch_1", amount=500)
CHARGE = Charge(amount=500, currency="usd", payment_method="pm_1", customer="cus_1")


def operation(call: Call = REFUND, **more: Any) -> Operation:
    """An operation that was asked for an hour ago."""
    asked = NOW - timedelta(hours=1)
    made = Operation(
        id=ID,
        account="acct_1",
        mode="test",
        effect="refund",
        subject="in_1",
        occurrence=1,
        order_key=None,
        args={"charge": "ch_1"},
        state=State.REQUESTED,
        steps=freeze(call, operation_id=ID),
        step=0,
        api_version="2026-10-28.endive",
        requested_at=asked,
        window_from=asked,
        fence=3,
    )
    return replace(made, **more)


def claimed(call: Call = REFUND, **more: Any) -> Claimed:
    """The same, leased now; what is no field of an operation is one of the lease."""
    lease = {name: more.pop(name) for name in ("attempts", "in_hand_at", "look_at", "surplus") if name in more}
    return Claimed(
        operation=operation(call, **more),
        **{"attempts": 0, "in_hand_at": None, "look_at": None, "surplus": (), **lease},
        read_at=NOW,
    )
