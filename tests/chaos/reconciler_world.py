"""The running system with a reconciler and a simulator whose event list it reads.

Rule: what the list shows is told by the faults, and each of these events is one that was sent: the verdict knows it by the
bytes that the list makes of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from onceflow_simulator import Simulator
from tests.chaos.world import COMMANDS, World
from tests.checker.snapshot import ANSWERED, Delivery

API_KEY = "sk_test_chaos"
ACCOUNT = "acct_embedded"
CYCLE_SECONDS = 1
LEASE_SECONDS = 5


class ReconcilerWorld(World):
    """See the module; arguments as those of ``World``."""

    commands: Mapping[str, str] = {**COMMANDS, "reconciler": "reconcile"}

    def __init__(self, folder: Path, *, seed: int) -> None:
        settings = {
            "reconciler.cycle_seconds": CYCLE_SECONDS,
            "reconciler.grace_seconds": 1,
            "reconciler.lease_seconds": LEASE_SECONDS,
            "reconciler.requests_per_second": 200,
            "reconciler.first_hours": 1,
        }
        super().__init__(folder, seed=seed, settings=settings)
        self.simulator = Simulator(seed=seed)

    def start(self) -> None:
        """Start the simulator, then everything; returns when all are ready."""
        self.simulator.__enter__()
        self.simulator.call("POST", "/keys", body={"key": API_KEY, "account": ACCOUNT})
        self._settings |= {"stripe.api_base": self.simulator.url, "stripe.api_key": API_KEY}
        super().start()

    def stop(self) -> None:
        """End everything."""
        try:
            super().stop()
        finally:
            if self.simulator.pid:
                self.simulator.stop()

    def heal(self) -> None:
        """Bring everything back; the simulator does nothing wrong any more."""
        self.simulator.faults.clear()
        self.simulator.set(account_per_second=None, endpoint_per_second=None)
        super().heal()

    def tell(self, events: Sequence[dict[str, Any]], *, surely: bool = True) -> None:
        """Have Stripe list events, in the order of their times; not ``surely`` are they brought where webhooks come too."""
        ordered = sorted(events, key=lambda event: int(event["created"]))
        self.simulator.tell_events(ordered, account=ACCOUNT)
        for event in ordered:
            shown = orjson.dumps({"object": "event", **event, "pending_webhooks": 0})
            self.deliveries.append(Delivery(hashlib.sha256(shown).digest(), ANSWERED if surely else None))

    def findings(self) -> dict[str, str]:
        """The missed events by id, with the state of their finding."""
        rows = self.rows("SELECT facts ->> 'event_id', state FROM onceflow.finding WHERE kind = 'missed_event'")
        return dict(rows)
