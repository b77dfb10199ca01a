"""The simulator as a process of its own, for sides that call Stripe.

Rule: nothing limits or loses calls here, and each side begins with a Stripe in which nothing but one charge has happened.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import stripe

from bench.bodies import ACCOUNT
from bench.children import READY_SECONDS, Child, SideFailed, product_environment, running, wait_for
from bench.stage import Stage
from onceflow_simulator.client import Ledger, SimulatorClient

API_KEY = "sk_test_bench"
CHARGE_AMOUNT = 99_999_999
CALL_SECONDS_MAX = 10.0


@dataclass(frozen=True, slots=True)
class SimulatedStripe:
    """A running simulator."""

    url: str
    child: Child

    def begin(self, *, latency_ms: float) -> str:
        """Forget all that happened, and return the id of a new charge."""
        client = SimulatorClient(self.url)
        client.reset()
        client.set(latency_ms=latency_ms)
        params = {"amount": CHARGE_AMOUNT, "currency": "usd", "confirm": True, "payment_method": "pm_card_visa"}
        sdk = stripe.StripeClient(
            API_KEY,
            base_addresses={"api": self.url},
            http_client=stripe.RequestsClient(timeout=CALL_SECONDS_MAX),
        )
        intent = sdk.raw_request("post", "/v1/payment_intents", **params)
        return str(json.loads(intent.body)["latest_charge"])

    def refunds(self, *, expected: int) -> Ledger:
        """Return the truth about refunds.

        Raises:
            SideFailed: there are more or fewer than expected.
        """
        ledger = SimulatorClient(self.url).ledger(kind="refund")
        if len(ledger.entries) != expected:
            raise SideFailed(f"{len(ledger.entries)} refunds were made instead of {expected}")
        return ledger


@contextmanager
def simulated_stripe(stage: Stage) -> Iterator[SimulatedStripe]:
    """Run one until the block ends."""
    state_file = stage.folder / "simulator.state.json"
    state_file.unlink(missing_ok=True)
    argv = [sys.executable, "-m", "onceflow_simulator", "--account", ACCOUNT, "--state-file", str(state_file)]
    with running("simulator", argv, environment=product_environment({}), folder=stage.folder) as child:
        wait_for(state_file.exists, limit_seconds=READY_SECONDS, what="the simulator is ready", child=child)
        state = json.loads(state_file.read_text("utf-8"))
        yield SimulatedStripe(state["url"], child)
