"""Workers whose calls go to the simulator, and time that passes for an operation without anybody waiting for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import stripe
from typing_extensions import override

from onceflow_processor.handlers import Handlers
from onceflow_processor.operations import ready_made
from onceflow_processor.operations.effect import Settled
from onceflow_processor.operations.senders.stripe_gateway import StripeAccess, StripeGateway
from onceflow_processor.tx import Tx
from onceflow_schemas.operations.evidence import Evidence
from onceflow_schemas.operations.operation import Operation, Step
from onceflow_simulator import Simulator
from tests.processor.operations.conftest import ACCOUNT, SECONDS_MAX, Desk, Scripted

CARD = "pm_card_visa"
PRICE = 2_000

shop = Handlers()
charge = shop.use(ready_made.charge, name="charge")
refund = shop.use(ready_made.refund, name="refund")
capture = shop.use(ready_made.capture, name="capture")


@charge.settled
@refund.settled
def told(settled: Settled, tx: Tx) -> None:
    """Tell how it ended."""
    tx.outcome(f"{settled.effect}.{settled.state}", key=settled.subject, data={"id": settled.id})


@dataclass
class AtSimulator(Scripted):
    """A sender that calls the simulator and notes what was asked of it."""

    url: str = ""
    api_key: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        access = StripeAccess(account=ACCOUNT, mode="test", api_key=self.api_key)
        self.gateway = StripeGateway(
            [access], api_base=self.url, connect_seconds=self.seconds_max, total_seconds=self.seconds_max
        )

    @override
    async def send(self, step: Step, operation: Operation) -> Evidence:
        self.sent.append((operation.subject, step.key))
        return await self.gateway.send(step, operation)

    @override
    async def look_up(self, step: Step, operation: Operation, *, how: Mapping[str, Any] | None = None) -> Evidence:
        self.looked.append(operation.subject)
        return await self.gateway.look_up(step, operation, how=how)

    @override
    async def close(self) -> None:
        await self.gateway.close()


def at(simulator: Simulator, *, seconds_max: float = SECONDS_MAX) -> AtSimulator:
    """A sender for one worker."""
    return AtSimulator(url=simulator.url, api_key=simulator.api_key, seconds_max=seconds_max)


def pass_hours(desk: Desk, simulator: Simulator, hours: int) -> None:
    """Let so much time pass for every operation, and Stripe forget its keys when it was a day or more."""
    past = f"- interval '{hours} hours'"
    desk.change(
        f"UPDATE onceflow.operation SET requested_at = requested_at {past}, window_from = window_from {past},"
        f" looked_up_at = looked_up_at {past}"
    )
    desk.change(f"UPDATE onceflow.attempt SET sent_at = sent_at {past}, settled_at = settled_at {past}")
    make_due(desk)
    if hours >= 24:
        simulator.prune_keys()


def make_due(desk: Desk) -> None:
    """Let no operation wait any longer."""
    desk.change(
        "UPDATE onceflow.operation SET next_attempt_at = clock_timestamp()"
        " WHERE lease_owner IS NULL AND next_attempt_at < 'infinity'"
    )


def client_of(simulator: Simulator) -> stripe.StripeClient:
    """Stripe's own library, pointed at the simulator."""
    return stripe.StripeClient(
        simulator.api_key, base_addresses={"api": cast("Any", simulator.url)}, max_network_retries=0
    )


def paid_charge(simulator: Simulator, *, amount: int = PRICE) -> str:
    """A charge that somebody made before; its id."""
    made = client_of(simulator).v1.payment_intents.create(
        {"amount": amount, "currency": "usd", "confirm": True, "payment_method": CARD}
    )
    return str(made.latest_charge)
