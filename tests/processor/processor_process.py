"""A processor as its own process, as ``onceflow process`` starts it, on topics and a database of a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Producer
from psycopg.rows import dict_row

from tests import waiting
from tests.conftest import create_topic
from tests.processor.conftest import ACCOUNT, DEPLOYMENT, KEY, event_body, record
from tests.processor.inputs.foreign_records import SECRET, WRAP

WAIT_SECONDS_MAX = 90.0
CREATED = int(time.time())
"""Of events of foreign formats, whose own time is compared with the horizon; repeats of an event say the same."""
PARTITION_UA = -1
"""librdkafka's "no partition": the partitioner chooses."""
LANES = 3


@dataclass
class Road:
    """An event topic, an outcome topic and a database, with lanes made as ``topics apply`` makes them."""

    bootstrap: str
    database_url: str
    folder: Path
    group_protocol: str = "auto"
    partitions: int = 3
    events: str = ""
    outcomes: str = ""
    deployment: str = field(default_factory=lambda: f"{DEPLOYMENT}-{uuid.uuid4().hex[:8]}")
    input_format: str = "onceflow"

    def __post_init__(self) -> None:
        self.events = create_topic(self.bootstrap, prefix="events", partitions=self.partitions)
        self.outcomes = create_topic(self.bootstrap, prefix="outcomes", partitions=LANES)
        self._environment = {
            **os.environ,
            "DATABASE_URL": self.database_url,
            "ONCEFLOW_DEPLOYMENT_ID": self.deployment,
            "ONCEFLOW_STRIPE_ACCOUNT": ACCOUNT,
            "ONCEFLOW_KAFKA_BOOTSTRAP_SERVERS": self.bootstrap,
            "ONCEFLOW_TOPICS_EVENTS": self.events,
            "ONCEFLOW_TOPICS_OUTCOMES": self.outcomes,
            "ONCEFLOW_TOPICS_PARTITIONS": str(self.partitions),
            "ONCEFLOW_ATTESTATION_KEYS": f"{KEY.id}={KEY.secret.decode()}",
            "ONCEFLOW_PROCESSOR_GROUP_PROTOCOL": self.group_protocol,
            "ONCEFLOW_PROCESSOR_HANDLERS": "tests.processor.sample_handlers:handlers",
        }
        if self.input_format != "onceflow":
            trust: dict[str, Any] = {"trust": "transport"}
            if self.input_format == "stripe-json":
                trust = {"trust": "stripe-signature", "secrets": [f"endpoint-1={SECRET}"]}
            table = {"topic": self.events, "format": self.input_format, **trust}
            self._environment["ONCEFLOW_INPUTS"] = json.dumps([table])
        from onceflow_processor.kafka_client import admin_client, topic_id  # noqa: PLC0415

        outcome_id = topic_id(admin_client({"bootstrap.servers": self.bootstrap}), self.outcomes)
        with psycopg.connect(self.database_url, autocommit=True) as setup:
            for lane in range(LANES):
                setup.execute("INSERT INTO onceflow.lane (lane, topic_id) VALUES (%s, %s)", [lane, outcome_id])
            setup.execute("CREATE TABLE public.seen (event_id text, pid int)")

    @contextmanager
    def processor(self, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a processor; ``settings`` are further environment variables.  Ended by SIGTERM, then by SIGKILL."""
        with self._running(settings) as (process, log):
            assert process.poll() is None, log.read_text()[-3000:]
            yield process

    @contextmanager
    def doomed_processor(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run a processor that dies by itself, perhaps before anybody could see it ready."""
        with self._running({}) as (process, _):
            yield process

    @contextmanager
    def _running(self, settings: Mapping[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        number = uuid.uuid4().hex[:6]
        state = self.folder / f"processor-{number}.json"
        log = self.folder / f"processor-{number}.log"
        environment = {**self._environment, "ONCEFLOW_RUNTIME_STATE_FILE": str(state), **settings}
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "onceflow", "process"], env=environment, stderr=stderr, stdout=stderr
            )
        try:
            wait_until(lambda: state.exists() or process.poll() is not None, "the processor is ready")
            yield process, log
        finally:
            end(process)

    def publish(
        self, event_ids: Sequence[str], *, partition: int | None = None, event_type: str = "invoice.paid", **extra: Any
    ) -> None:
        """Publish events as the bridge does, or as the format of the topic wants them, one invoice each."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "partitioner": "murmur2_random"})
        for event_id in event_ids:
            subject = {"id": f"in_{event_id}", "object": "invoice", "amount_paid": 1}
            if self.input_format != "onceflow":
                body = event_body(event_id, event_type, subject, **{"created": CREATED, **extra})
                wrapped = WRAP[self.input_format](body)
                self.produce(producer, None, wrapped.value, headers=wrapped.headers, partition=partition)
                continue
            made = record(
                event_body(event_id, event_type, subject, **extra), 0, topic=self.events, deployment=self.deployment
            )
            self.produce(producer, made.key, made.value, headers=made.headers, partition=partition)
        assert producer.flush(20) == 0

    def produce(self, producer: Producer, key: Any, value: Any, *, headers: Any, partition: int | None = None) -> None:
        """Put any record on the event topic."""
        producer.produce(
            self.events, value, key, headers=headers, partition=PARTITION_UA if partition is None else partition
        )
        producer.poll(0)

    def rows(self, query: str, *parameters: Any) -> list[dict[str, Any]]:
        with psycopg.connect(self.database_url, row_factory=dict_row) as connection:
            return connection.execute(query.encode(), parameters).fetchall()

    def states(self) -> dict[str, str]:
        return {row["event_id"]: row["state"] for row in self.rows("SELECT event_id, state FROM onceflow.inbox")}

    def wait_for_events(self, count: int) -> None:
        wait_until(lambda: len(self.states()) >= count, f"{count} events have a state")

    def outcome_ids(self) -> list[str]:
        return [str(row["ce_id"]) for row in self.rows("SELECT ce_id FROM onceflow.outcome ORDER BY lane, seq")]

    def stopped(self) -> dict[int, str]:
        rows = self.rows("SELECT partition, stopped FROM onceflow.progress WHERE stopped IS NOT NULL")
        return {row["partition"]: row["stopped"] for row in rows}


def end(process: subprocess.Popen[bytes]) -> int:
    """End a process cleanly, bounded in time."""
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.terminate()
    try:
        return process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(5)
        raise


def wait_until(condition: Any, what: str, *, limit_seconds: float = WAIT_SECONDS_MAX) -> None:
    """Wait until a condition holds; fail with what was waited for."""
    waiting.wait_until(condition, within_seconds=limit_seconds, why=what)


MakeRoad = Callable[..., Road]


def ids(prefix: str, count: int) -> list[str]:
    return [f"evt_{prefix}{number}" for number in range(count)]
