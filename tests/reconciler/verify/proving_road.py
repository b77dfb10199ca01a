"""A whole road with a simulator of Stripe behind it: events are brought by the reconciler, processed, and their outcomes published.

Looks and proofs run in this process, which spares each the start of another one; ``run`` is a command as a person types it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition

from onceflow.service_options import reconciler_options
from onceflow.settings import SettingSources, load_settings
from onceflow.settings_model import Settings
from onceflow.verifying import answer_of, question_of
from onceflow_reconciler.service import look_once
from onceflow_reconciler.verify.question import Answer
from onceflow_simulator import Simulator
from onceflow_simulator.triggers import trigger
from tests.conftest import migrated_template, new_database
from tests.processor.processor_process import Road, wait_until
from tests.processor.relaying import all_published, relay

COMMAND_SECONDS_MAX = 120
WORDS = ["invoice.paid"] * 3 + ["refund.created"]
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
"""Before whatever there is: a window of everything, in which nothing is proved by blocks."""


class ProvingRoad:
    """A road whose account the simulator plays."""

    def __init__(self, road: Road, simulator: Simulator) -> None:
        self.road = road
        self.simulator = simulator
        self.environment = {
            **road._environment,
            "ONCEFLOW_STRIPE_API_BASE": simulator.url,
            "STRIPE_API_KEY": simulator.api_key,
            "ONCEFLOW_RECONCILER_GRACE_SECONDS": "1",
            # The first look back would take half a minute at the pace that is kept beside live traffic.
            "ONCEFLOW_RECONCILER_REQUESTS_PER_SECOND": "500",
        }
        road._environment = self.environment

    def make_events(self, words: Sequence[str]) -> None:
        for word in words:
            trigger(self.simulator.url, word, api_key=self.simulator.api_key)
        # Old enough to be judged.
        self.simulator.advance(10)

    def look(self) -> tuple[int, int]:
        """Have the reconciler look once; return how many events Stripe lists, and how many differences the ledgers have."""
        settings = self._settings()
        options = replace(reconciler_options(settings), ledgers=question_of(settings))
        found, ledgers = look_once(options, dry_run=False)
        [looked] = found.values()
        return looked.events.listed, ledgers

    def bring(self) -> int:
        """Bring what Stripe lists to the topic; return how many events it lists."""
        return self.look()[0]

    def settle(self, events: int) -> None:
        """Have everything processed and published."""
        with self.road.processor(), relay(self.road):
            self.road.wait_for_events(events)
            wait_until(lambda: all_published(self.road), "all outcomes are published")

    def settled(self, words: Sequence[str] = WORDS) -> ProvingRoad:
        """Have events made, brought, processed and published."""
        self.make_events(words)
        self.settle(self.bring())
        return self

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "onceflow", *arguments],
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )

    def verify(self, *arguments: str) -> dict[str, Any]:
        """Return what ``verify --json`` says; its status fits to it."""
        done = self.run("verify", "--json", *arguments)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        assert (done.returncode == 0) == (told["unexplained"] == 0), told
        return told

    def answer(
        self,
        *,
        with_stripe: bool = True,
        since: datetime | None = None,
        former: Mapping[str, Any] | None = None,
        keep_findings: bool = False,
    ) -> Answer:
        return answer_of(
            self._settings(),
            since=since,
            until=None,
            account=None,
            former=former,
            with_stripe=with_stripe,
            keep_findings=keep_findings,
        )

    def kinds(self, *, with_stripe: bool = True) -> list[str]:
        """Return the kinds of what is unexplained; without Stripe's side it must be the same by blocks and record by record."""
        found = self.answer(with_stripe=with_stripe)
        if not with_stripe:
            one_by_one = self.answer(with_stripe=False, since=LONG_AGO)
            assert found.unexplained == one_by_one.unexplained
            assert (found.events, found.counts) == (one_by_one.events, one_by_one.counts)
        return [kind for kind, _, _ in found.unexplained]

    def _settings(self) -> Settings:
        return load_settings(SettingSources(), environment=self.environment).settings

    @contextmanager
    def altered(self, *statements: str) -> Iterator[None]:
        """Alter the ledger for as long as the block runs: the tables are put back afterwards."""
        tables = ("inbox", "outcome", "quarantine", "lane", "progress")
        with psycopg.connect(self.road.database_url, autocommit=True) as connection:
            for table in tables:
                connection.execute(f"CREATE TABLE public.kept_{table} AS TABLE onceflow.{table}")
            for statement in statements:
                assert connection.execute(statement.encode()).rowcount > 0, statement
        try:
            yield
        finally:
            with psycopg.connect(self.road.database_url, autocommit=True) as connection:
                connection.execute(
                    "DELETE FROM onceflow.outcome; DELETE FROM onceflow.inbox; DELETE FROM onceflow.quarantine; DELETE FROM onceflow.progress"
                )
                for table in ("inbox", "outcome", "quarantine", "progress"):
                    connection.execute(f"INSERT INTO onceflow.{table} SELECT * FROM public.kept_{table}")
                connection.execute(
                    "UPDATE onceflow.lane SET head_seq = k.head_seq, published_seq = k.published_seq, state = k.state"
                    " FROM public.kept_lane AS k WHERE k.lane = lane.lane"
                )
                for table in tables:
                    connection.execute(f"DROP TABLE public.kept_{table}")

    def change(self, statement: str) -> None:
        """Change rows for good."""
        with psycopg.connect(self.road.database_url) as connection:
            assert connection.execute(statement.encode()).rowcount > 0, statement

    def first_record(self, topic: str) -> Any:
        """Return some record of a topic."""
        reader = Consumer(
            {"bootstrap.servers": self.road.bootstrap, "group.id": "test", "auto.offset.reset": "earliest"}
        )
        try:
            reader.assign([TopicPartition(topic, number, 0) for number in range(3)])
            found = reader.consume(1, timeout=20)
            assert found, "a record is read"
            return found[0]
        finally:
            reader.close()

    def append(self, topic: str, record: Any, **changes: Any) -> None:
        """Write a record again by hand, with changes."""
        producer = Producer({"bootstrap.servers": self.road.bootstrap})
        given = {
            "key": record.key(), "value": record.value(), "headers": record.headers(), "partition": record.partition(),
        } | changes  # fmt: skip
        producer.produce(topic, **given)
        assert producer.flush(20) == 0


@contextmanager
def lasting_road(*, kafka_bootstrap: str, database_url: str, folder: Path) -> Iterator[ProvingRoad]:
    """A settled road for several tests, each of which leaves it as it was."""
    with ExitStack() as stack:
        simulator = stack.enter_context(Simulator(seed=11))
        address = stack.enter_context(new_database(database_url, template=migrated_template(database_url)))
        yield ProvingRoad(Road(kafka_bootstrap, address, folder), simulator).settled()
