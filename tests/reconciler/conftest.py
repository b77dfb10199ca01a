"""A road whose events come from a simulated Stripe, with a reconciler beside the processor."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import stripe
from confluent_kafka import Producer

from onceflow.commands.reconcile import status_of, told_of
from onceflow.service_options import reconciler_options
from onceflow.settings import SettingSources, load_settings
from onceflow.verifying import answer_of, question_of
from onceflow_reconciler.service import look_once
from onceflow_reconciler.verify.question import Answer
from onceflow_schemas.envelope import read_envelope
from onceflow_schemas.event_record import build_event
from onceflow_simulator import Simulator
from tests.processor.conftest import KEY
from tests.processor.processor_process import Road, wait_until
from tests.processor.relaying import all_published, relay

PLATFORM, CONNECTED = "acct_simulator", "acct_C1"
COMMAND_SECONDS_MAX = 120


@dataclass
class ReconcilerRoad(Road):
    """A road with a Stripe."""

    stripe: Simulator = None  # type: ignore[assignment]  # given by the fixture

    def __post_init__(self) -> None:
        super().__post_init__()
        self._environment |= {
            "ONCEFLOW_STRIPE_ACCOUNT": PLATFORM,
            "ONCEFLOW_STRIPE_API_BASE": self.stripe.url,
            "STRIPE_API_KEY": self.stripe.api_key,
            "ONCEFLOW_PROCESSOR_HANDLERS": "tests.reconciler.handlers:handlers",
            "ONCEFLOW_RECONCILER_GRACE_SECONDS": "1",
            "ONCEFLOW_RECONCILER_REQUESTS_PER_SECOND": "200",
            "ONCEFLOW_RECONCILER_LEASE_SECONDS": "5",
        }

    def once(self, *, status: int = 0, accounts: str = "", dry_run: bool = False, **changed: Any) -> dict[str, Any]:
        """``onceflow reconcile --once`` in this process, which is quicker; what it says of each account.

        ``changed`` are options that no setting allows.
        """
        environment = {**self._environment, "ONCEFLOW_STRIPE_ACCOUNTS": accounts}
        settings = load_settings(SettingSources(), environment=environment).settings
        options = replace(reconciler_options(settings, announce=None), ledgers=question_of(settings), **changed)
        found, ledgers = look_once(options, dry_run=dry_run)
        told = {account: told_of(looked) for account, looked in found.items()}
        assert status_of(found, ledgers) == status, (told, ledgers, self.findings())
        return told

    def answer(self, *, with_stripe: bool = True, accounts: str = "", **asked: Any) -> Answer:
        """``onceflow verify`` in this process; since, until, account and former as it takes them."""
        environment = {**self._environment, "ONCEFLOW_STRIPE_ACCOUNTS": accounts}
        settings = load_settings(SettingSources(), environment=environment).settings
        given: dict[str, Any] = {"since": None, "until": None, "account": None, "former": None, **asked}
        return answer_of(settings, with_stripe=with_stripe, **given)

    def settle(self, events: int, *, accounts: str = "") -> None:
        """Have so many events processed, and their outcomes published."""
        with self.processor(ONCEFLOW_STRIPE_ACCOUNTS=accounts):
            self.wait_for_events(events)
        with relay(self):
            wait_until(lambda: all_published(self), "all outcomes are published")

    def once_by_command(self, *arguments: str, status: int = 0, accounts: str = "") -> dict[str, Any]:
        """``onceflow reconcile --once``; what it said of each account."""
        done = subprocess.run(
            [sys.executable, "-m", "onceflow", "reconcile", "--once", "--json", *arguments],
            env={**self._environment, "ONCEFLOW_STRIPE_ACCOUNTS": accounts},
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr[-3000:]
        found: dict[str, Any] = json.loads(done.stdout)["accounts"]
        return found

    def refusal(self) -> str:
        """``onceflow reconcile --once`` that does nothing; what it said."""
        command = [sys.executable, "-m", "onceflow", "reconcile", "--once"]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=False
        )
        assert done.returncode not in (0, 1), done.stdout + done.stderr
        return done.stderr

    def customers(self, count: int, *, account: str | None = None, api_key: str = "") -> list[str]:
        """Make customers at Stripe, one event each; the ids of the events, oldest first."""
        client = stripe.StripeClient(
            api_key or self.stripe.api_key, base_addresses={"api": self.stripe.url}, stripe_account=account
        )
        for number in range(count):
            client.v1.customers.create({"name": f"customer {number}"})
        listed = [event.id for event in client.v1.events.list({"limit": 100}).auto_paging_iter()]
        return listed[:count][::-1]

    def deliver(self, event_id: str) -> None:
        """Publish the event as the bridge does when its webhook comes after all."""
        client = stripe.StripeClient(self.stripe.api_key, base_addresses={"api": self.stripe.url})
        self.deliver_all([client.v1.events.retrieve(event_id).to_dict(for_json=True)])

    def deliver_all(self, events: Sequence[dict[str, Any]]) -> None:
        """Publish events as the bridge does, in Stripe's own bytes."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "partitioner": "murmur2_random"})
        for event in events:
            body = json.dumps(event, indent=2).encode()
            made = build_event(
                body,
                envelope=read_envelope(body),
                default_account=PLATFORM,
                default_mode="test",
                received_at=datetime.now(UTC),
                endpoint="endpoint-1",
                source="webhook",
                deployment=self.deployment,
                topic=self.events,
                key=KEY,
                traceparent=None,
            )
            self.produce(producer, made.key, made.value, headers=made.headers)
        assert producer.flush(20) == 0

    def findings(self) -> list[dict[str, Any]]:
        """All but those of surroundings: these tests have no webhook endpoint, and clocks of their own."""
        return self.rows(
            "SELECT kind, subject, state, facts, times FROM onceflow.finding"
            " WHERE kind NOT LIKE 'endpoint%%' AND kind <> 'clock_skew' ORDER BY id"
        )

    def cursor(self, account: str = PLATFORM) -> Any:
        query = "SELECT done_until FROM onceflow.reconcile_cursor WHERE account = %s AND source = 'events'"
        rows = self.rows(query, account)
        return rows[0]["done_until"] if rows else None


MakeReconcilerRoad = Callable[..., ReconcilerRoad]


@pytest.fixture(scope="package")
def simulator_process() -> Iterator[Simulator]:
    with Simulator(seed=9) as running:
        yield running


@pytest.fixture
def simulator(simulator_process: Simulator) -> Iterator[Simulator]:
    simulator_process.reset()
    yield simulator_process
    assert simulator_process.state()["bugs"] == []


@pytest.fixture
def make_road(kafka_bootstrap: str, fresh_database: str, tmp_path: Path, simulator: Simulator) -> MakeReconcilerRoad:
    def make(**given: Any) -> ReconcilerRoad:
        return ReconcilerRoad(kafka_bootstrap, fresh_database, tmp_path, stripe=simulator, **given)

    return make


@pytest.fixture
def road(make_road: MakeReconcilerRoad) -> ReconcilerRoad:
    return make_road()
