"""What the tests of the relay share: lanes with rows put in by SQL, the raw topic, and relays as processes.

Nothing here uses the relay's own reading or judging: what came out is counted from raw records.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import psycopg
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from onceflow_processor.relay.kafka_clients import Refusals
from onceflow_processor.relay.lane_store import LaneStore, connect
from onceflow_processor.relay.lease import Lease, lease_name
from onceflow_processor.relay.metrics import RelayMetrics
from onceflow_processor.relay.session import Session, SessionSettings
from tests.waiting import wait_until

DEPLOYMENT = "test"
WAIT_SECONDS = 60.0
SCRIPT = Path(__file__).with_name("relay_process.py")


def wait_for(condition: Callable[[], bool], what: str, *, seconds: float = WAIT_SECONDS) -> None:
    """Wait until the condition holds; fails with ``what`` when it does not in time."""
    wait_until(condition, within_seconds=seconds, why=what)


class Clock:
    """Our monotonic clock, moved by hand."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@dataclass
class Lanes:
    """An outcome topic and the lanes of it in a database."""

    bootstrap: str
    database_url: str
    topic: str
    count: int
    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def group(self) -> str:
        return f"onceflow.test.relay.{self.topic}"

    @property
    def transactional_id(self) -> str:
        return f"onceflow.test.relay.{self.topic}"

    def topic_id(self) -> str:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        return str(admin.describe_topics(TopicCollection([self.topic]))[self.topic].result(20).topic_id)

    def create(self) -> None:
        with self.connect() as connection:
            connection.execute(
                "INSERT INTO onceflow.lane (lane, topic_id) SELECT n, %s FROM generate_series(0, %s) AS n",
                [self.topic_id(), self.count - 1],
            )

    def create_anew(self) -> None:
        """Delete the topic, and create another one of its name."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([self.topic])[self.topic].result(20)
        wait_for(lambda: self.topic not in admin.list_topics(timeout=10).topics, "the topic is gone")
        admin.create_topics([NewTopic(self.topic, self.count, 1)])[self.topic].result(20)
        wait_for(lambda: self.topic in admin.list_topics(timeout=10).topics, "the topic is there")

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.database_url, autocommit=True)

    def sql(self, text: str, given: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            cursor = connection.execute(text.encode(), list(given))
            return cursor.fetchall() if cursor.description else []

    def add(self, lane: int, rows: int, *, value_bytes: int = 60) -> None:
        """Commit ``rows`` outcomes to a lane in one transaction, with ids that follow from lane and sequence."""
        with psycopg.connect(self.database_url) as connection:
            add_rows(connection, lane, rows, value_bytes=value_bytes)

    def state(self, lane: int) -> tuple[int, int, str, str]:
        """Head, published, state, detail."""
        return self.sql("SELECT head_seq, published_seq, state, detail FROM onceflow.lane WHERE lane = %s", [lane])[0]

    def all_published(self) -> bool:
        return self.sql("SELECT bool_and(head_seq = published_seq) FROM onceflow.lane") == [(True,)]

    def options(self, owner: str = "one", **changes: Any) -> dict[str, Any]:
        options = {
            "kafka": {"bootstrap.servers": self.bootstrap},
            "database_url": self.database_url,
            "deployment": DEPLOYMENT,
            "outcome_topic": self.topic,
            "group": self.group,
            "transactional_id": self.transactional_id,
            "owner": owner,
            "lease_ttl_seconds": 2.0,
            "batch_records_max": 1_000,
            "poll_seconds": 0.02,
            "state_file": str(self.folder / f"{owner}.{uuid.uuid4().hex[:6]}.json"),
        }
        return options | changes

    def start(self, owner: str = "one", **changes: Any) -> subprocess.Popen[bytes]:
        """Start a relay; its log goes to a file in the folder."""
        options = self.options(owner, **changes)
        log = (self.folder / "relay.log").open("ab")
        with log:
            process = subprocess.Popen([sys.executable, str(SCRIPT), json.dumps(options)], stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def start_ready(self, owner: str = "one", **changes: Any) -> subprocess.Popen[bytes]:
        options = self.options(owner, **changes)
        process = self.start(owner, **{**changes, "state_file": options["state_file"]})
        wait_for(lambda: Path(options["state_file"]).exists() or process.poll() is not None, "the relay is ready")
        assert process.poll() is None, self.log()
        return process

    def log(self) -> str:
        return (self.folder / "relay.log").read_text()

    def stop_all(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait(20)

    def records(self, *, isolation: str = "read_committed") -> dict[int, list[Message]]:
        """All records of the topic by partition, read from the start to the end."""
        return read_all(self.bootstrap, self.topic, partitions=self.count, isolation=isolation)

    def sequences(self, *, isolation: str = "read_committed") -> dict[int, list[int]]:
        return {lane: [sequence(one) for one in found] for lane, found in self.records(isolation=isolation).items()}

    def commit_cursor(self, lane: int, offset: int, metadata: str = "") -> None:
        """What anybody with the right to commit can do."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group, "enable.auto.commit": False})
        try:
            consumer.commit(offsets=[TopicPartition(self.topic, lane, offset, metadata=metadata)], asynchronous=False)
        finally:
            consumer.close()

    def cursor(self, lane: int) -> tuple[int, str | None]:
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": self.group, "isolation.level": "read_committed"}
        )
        try:
            found = consumer.committed([TopicPartition(self.topic, lane)], timeout=30)[0]
            return found.offset, found.metadata
        finally:
            consumer.close()

    def transactional_producer(self, transactional_id: str) -> Producer:
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": transactional_id})
        producer.init_transactions(20)
        return producer


def add_rows(connection: psycopg.Connection[Any], lane: int, rows: int, *, value_bytes: int = 60) -> int:
    """Put rows into a lane as a batch transaction does: the head hands out the sequence; returns the new head."""
    row = connection.execute(
        "UPDATE onceflow.lane SET head_seq = head_seq + %s WHERE lane = %s RETURNING head_seq", [rows, lane]
    ).fetchone()
    assert row is not None
    head = int(row[0])
    connection.execute(
        "INSERT INTO onceflow.outcome (lane, seq, outcome_id, ce_id, type, key, value, cause)"
        " SELECT %(lane)s, seq, md5(%(lane)s || ':' || seq)::uuid, md5(%(lane)s || ':' || seq)::uuid, 'payment.done',"
        "        'key ' || seq %% 7, convert_to('{\"n\":\"' || repeat('x', %(bytes)s) || '\"}', 'UTF8'),"
        "        'event:acct_1/test/evt_' || seq"
        " FROM generate_series(%(first)s::bigint, %(head)s::bigint) AS seq",
        {"lane": lane, "first": head - rows + 1, "head": head, "bytes": value_bytes},
    )
    return head


def header(message: Message, name: str) -> str | None:
    for key, value in cast("list[tuple[str, bytes | None]]", message.headers() or []):
        if key == name and value is not None:
            return value.decode()
    return None


def sequence(message: Message) -> int:
    return int(header(message, "onceflow_sequence") or -1)


def read_all(
    bootstrap: str, topic: str, *, partitions: int, isolation: str = "read_committed"
) -> dict[int, list[Message]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader.{uuid.uuid4().hex}",
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    found: dict[int, list[Message]] = defaultdict(list)
    ended: set[int] = set()
    give_up_at = time.monotonic() + WAIT_SECONDS
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        while len(ended) < partitions:
            assert time.monotonic() < give_up_at, "the topic was not read to its end"
            message = consumer.poll(0.5)
            if message is None:
                continue
            number, error = message.partition(), message.error()
            assert number is not None
            if error is None:
                found[number].append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(number)
    finally:
        consumer.close()
    return {number: found[number] for number in range(partitions)}


def check_exactly_once(lanes: Lanes, expected: dict[int, int]) -> None:
    """Every lane has sequences 1..n, each once and in order, each with the id of its row."""
    records = lanes.records()
    assert {lane: len(found) for lane, found in records.items()} == expected
    for lane, found in records.items():
        assert [sequence(one) for one in found] == list(range(1, expected[lane] + 1)), f"lane {lane}"
        assert len({header(one, "ce_id") for one in found}) == len(found)
    rows = {(lane, seq): str(ce_id) for lane, seq, ce_id in lanes.sql("SELECT lane, seq, ce_id FROM onceflow.outcome")}
    topic = {(lane, sequence(one)): header(one, "ce_id") for lane, found in records.items() for one in found}
    assert topic == rows


@contextlib.contextmanager
def stopped(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """SIGSTOP for the time of the block, then SIGCONT."""
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


@contextlib.contextmanager
def term(lanes: Lanes, *, clock: Callable[[], float] = time.monotonic, **changes: Any) -> Iterator[Session]:
    """One term of a relay in this process, opened, for tests that look at single steps."""
    given: dict[str, Any] = {
        "kafka": {"bootstrap.servers": lanes.bootstrap},
        "deployment": DEPLOYMENT,
        "outcome_topic": lanes.topic,
        "group": lanes.group,
        "transactional_id": lanes.transactional_id,
        "batch_records_max": 1_000,
    }
    connection = connect(lanes.database_url, role="onceflow-relay", prepared=True)
    name = lease_name(lanes.topic)
    lease = Lease(connection, name=name, owner="test", ttl_seconds=60.0, clock=time.monotonic)
    assert lease.acquire(), "the lease is free"
    session = Session(
        SessionSettings(**(given | changes)),
        store=LaneStore(connection, lease_name=name),
        lease=lease,
        metrics=RelayMetrics(),
        refusals=Refusals(),
        clock=clock,
    )
    try:
        session.open()
        yield session
    finally:
        session.close()
        lease.release()
        connection.close()


def run_dry(session: Session, *, steps_max: int = 200) -> int:
    """Step until nothing moves; returns the number of steps."""
    for done in range(steps_max):
        if not session.step():
            return done
    raise AssertionError("the relay does not come to rest")
