"""One installation on somebody else's Kafka and PostgreSQL: our commands as processes, each with its own credentials."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import requests
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.producer.bridge_process import SECRET, signed
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
HANDLERS = "tests.processor.sample_handlers:handlers"
PARTITIONS = 3
START_SECONDS = 40.0
COMMAND_SECONDS = 60.0
STOP_SECONDS = 20.0
READ_SECONDS = 40.0
READ_RECORDS_MAX = 500
REQUEST_SECONDS = 15.0


@dataclass
class Part:
    """A running bridge, processor or relay."""

    process: subprocess.Popen[bytes]
    log: Path
    state_file: Path

    @property
    def state(self) -> dict[str, Any]:
        """What it wrote when it became ready."""
        found: dict[str, Any] = json.loads(self.state_file.read_text())
        return found

    def text(self) -> str:
        """All that it logged."""
        return self.log.read_text()

    def lines(self) -> list[dict[str, Any]]:
        """What it logged as JSON."""
        found = []
        for line in self.text().splitlines():
            with suppress(ValueError):
                found.append(json.loads(line))
        return found

    def wait_for_code(self, code: str) -> dict[str, Any]:
        """Wait for a line of the log with this failure code."""
        return (
            wait_until(
                lambda: next((line for line in self.lines() if line.get("code") == code), None),
                within_seconds=START_SECONDS,
                why=f"no {code} in {self.text()}",
            )
            or {}
        )

    def exit_code(self) -> int:
        """Wait until it has ended by itself."""
        return self.process.wait(START_SECONDS)


@dataclass
class Installation:
    """What all parts have in common; ``environment`` wins over it, part by part.

    Args:
        folder: for logs and state files.
        kafka: librdkafka properties of a client that may look at everything.
        database_url: of an owner who may do everything.
        environment: settings for every part.
    """

    folder: Path
    kafka: Mapping[str, str]
    database_url: str
    environment: Mapping[str, str] = field(default_factory=dict)
    deployment: str = field(default_factory=lambda: f"test-{uuid.uuid4().hex[:8]}")

    @property
    def events(self) -> str:
        """The event topic."""
        return f"{self.deployment}.events"

    @property
    def outcomes(self) -> str:
        """The outcome topic."""
        return f"{self.deployment}.outcomes"

    def settings(self, **more: str) -> dict[str, str]:
        """Return the environment of a command."""
        inherited = {name: text for name, text in os.environ.items() if not name.startswith(("ONCEFLOW_", "PG"))}
        return {
            **inherited,
            "ONCEFLOW_CONFIG": os.devnull,
            "DATABASE_URL": self.database_url,
            "STRIPE_WEBHOOK_SECRET": f"main={SECRET}",
            "ONCEFLOW_DEPLOYMENT_ID": self.deployment,
            "ONCEFLOW_STRIPE_ACCOUNT": "acct_test",
            "ONCEFLOW_ATTESTATION_KEYS": "k1=0123456789abcdef0123456789abcdef",
            "ONCEFLOW_TOPICS_EVENTS": self.events,
            "ONCEFLOW_TOPICS_OUTCOMES": self.outcomes,
            "ONCEFLOW_TOPICS_PARTITIONS": str(PARTITIONS),
            "ONCEFLOW_PROCESSOR_HANDLERS": HANDLERS,
            "ONCEFLOW_BRIDGE_PORT": "0",
            **{_kafka_variable(name): text for name, text in self.kafka.items()},
            **self.environment,
            **more,
        }

    def command(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command of ours to its end."""
        return subprocess.run(
            [sys.executable, "-m", "onceflow", *arguments],
            cwd=ROOT,
            env=self.settings(**more),
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )

    def set_up(self, **more: str) -> None:
        """Make schema, topics and lanes, and the table of the handlers."""
        for arguments in (["migrate"], ["topics", "apply"]):
            done = self.command(*arguments, **more)
            assert done.returncode == 0, done.stderr
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS public.seen (event_id text, pid int)")

    @contextmanager
    def started(self, command: str, **more: str) -> Iterator[Part]:
        """Start a part and wait for nothing; it is ended by SIGTERM."""
        mark = f"{command}-{uuid.uuid4().hex[:6]}"
        log, state_file = self.folder / f"{mark}.log", self.folder / f"{mark}.json"
        environment = self.settings(ONCEFLOW_RUNTIME_STATE_FILE=str(state_file), **more)
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", "onceflow", command], cwd=ROOT, env=environment, stderr=stream, stdout=stream
            )
        try:
            yield Part(process, log, state_file)
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise

    @contextmanager
    def running(self, command: str, **more: str) -> Iterator[Part]:
        """Start a part and wait until it is ready."""
        with self.started(command, **more) as part:
            wait_until(
                lambda: part.state_file.exists() or part.process.poll() is not None,
                within_seconds=START_SECONDS,
                why=f"{command} is not ready: {part.text()}",
            )
            assert part.state_file.exists(), part.text()
            yield part

    def post(self, bridge: Part, event_id: str, session: requests.Session | None = None) -> requests.Response:
        """Post one event as Stripe does."""
        body = event_body(event_id)
        return (session or requests).post(
            bridge.state["url"] + "/webhooks/stripe",
            data=body,
            headers={"Stripe-Signature": signed(body)},
            timeout=REQUEST_SECONDS,
        )

    def send(self, bridge: Part, event_ids: Sequence[str]) -> None:
        """Post events, one invoice each; each must be taken."""
        with requests.Session() as session:
            for event_id in event_ids:
                answer = self.post(bridge, event_id, session)
                assert answer.status_code == 200, answer.text

    def wait_for_states(self, event_ids: Sequence[str]) -> dict[str, str]:
        """Wait until each of these events has a state, and return their states: others may be there from other tests."""
        wanted = set(event_ids)

        def states() -> dict[str, str]:
            with psycopg.connect(self.database_url) as connection:
                rows = connection.execute("SELECT event_id, state FROM onceflow.inbox").fetchall()
            return {event_id: state for event_id, state in rows if event_id in wanted}

        wait_until(
            lambda: states().keys() == wanted, within_seconds=READ_SECONDS, why=f"{len(wanted)} events have a state"
        )
        return states()

    def published(self, count: int) -> list[str]:
        """Wait for so many outcomes under read_committed, read on to the end, and return their events in order."""
        reader = Consumer(
            {
                **self.kafka,
                "group.id": "test.reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        reader.assign([TopicPartition(self.outcomes, number, 0) for number in range(PARTITIONS)])
        found: list[str] = []
        at_end: set[int | None] = set()

        def read() -> bool:
            for message in reader.consume(READ_RECORDS_MAX, 0.2):
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    at_end.add(message.partition())
                else:
                    at_end.discard(message.partition())
                    found.append(json.loads(message.value() or b"")["event"])
            return len(found) >= count and len(at_end) == PARTITIONS

        try:
            wait_until(read, within_seconds=READ_SECONDS, why=f"{len(found)} of {count} outcomes are published")
        finally:
            reader.close()
        return found


def event_body(event_id: str) -> bytes:
    """An invoice that was paid, as Stripe would write it."""
    subject = {"id": f"in_{event_id}", "object": "invoice", "amount_paid": 1, "currency": "eur"}
    fields = {"id": event_id, "object": "event", "api_version": "2025-09-30.clover", "created": 1_767_225_600}
    return json.dumps({**fields, "livemode": False, "type": "invoice.paid", "data": {"object": subject}}).encode()


def _kafka_variable(name: str) -> str:
    return "ONCEFLOW_KAFKA_" + name.upper().replace(".", "_")
