"""A batch on a real PostgreSQL: signed records, a database with lanes, and a runner over it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, MutableSet, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import Connection
from psycopg.rows import dict_row

from onceflow_processor.admission import Item, Rules, admit
from onceflow_processor.attempt import AttemptSettings, limits_setter
from onceflow_processor.batch_runner import BatchEnd, BatchRunner
from onceflow_processor.breaker import Breaker
from onceflow_processor.careful import Place, run_with_care
from onceflow_processor.claim import IN_TURN, Entry
from onceflow_processor.deadline import Deadline
from onceflow_processor.handler_run import HandlerSettings
from onceflow_processor.handlers import Handlers
from onceflow_processor.known import Known
from onceflow_processor.operations.request import RequestRules
from onceflow_processor.position import Position
from onceflow_processor.records import Partition, Record
from onceflow_processor.redrive import Redrive
from onceflow_schemas.attestation import AttestationKey
from onceflow_schemas.envelope import read_envelope
from onceflow_schemas.event_record import build_event
from onceflow_schemas.failure_course import RetryRules

if TYPE_CHECKING:
    from tests.processor.processor_process import MakeRoad

DEPLOYMENT = "test-deployment"
ACCOUNT = "acct_test"
TOPIC = "stripe.events.v1"
TOPIC_ID = "topic-id-1"
CLUSTER = "cluster-1"
LANES = 3
KEY = AttestationKey("k1", b"0123456789abcdef0123456789abcdef")
RULES = Rules(DEPLOYMENT, frozenset({ACCOUNT}), "test", {"k1": KEY}, timedelta(days=35))


def event_body(event_id: str, event_type: str, subject: dict[str, Any], **extra: Any) -> bytes:
    body = {
        "id": event_id,
        "object": "event",
        "api_version": "2024-06-20",
        "created": 1767225600,
        "livemode": False,
        "pending_webhooks": 1,
        "request": {"id": None, "idempotency_key": None},
        "type": event_type,
        "data": {"object": subject},
        **extra,
    }
    return json.dumps(body).encode()


def record(
    body: bytes,
    offset: int,
    *,
    partition: int = 0,
    received_at: datetime | None = None,
    topic: str = TOPIC,
    deployment: str = DEPLOYMENT,
) -> Record:
    """A record as the bridge would have published it."""
    made = build_event(
        body,
        envelope=read_envelope(body),
        default_account=ACCOUNT,
        default_mode="test",
        received_at=received_at or datetime.now(UTC),
        endpoint="endpoint-1",
        source="webhook",
        deployment=deployment,
        topic=topic,
        key=KEY,
        traceparent=None,
    )
    return Record(Partition(topic, partition), offset, 1_700_000_000_000, made.key, made.value, list(made.headers), 1)


def items_of(records: Sequence[Record], *, rules: Rules = RULES) -> list[Item]:
    return [admit(one, rules=rules, now=datetime.now(UTC)) for one in records]


@dataclass
class Bench:
    """A runner over one connection, with positions kept as the worker keeps them."""

    url: str
    connection: Connection[Any]
    handlers: Handlers
    known: Known = field(default_factory=Known)
    positions: dict[Partition, Position] = field(default_factory=dict)
    batch_seconds_max: float = 5.0
    stopping: bool = False
    breaker: Breaker = field(default_factory=Breaker)
    items: list[Item] = field(default_factory=list)
    wait: Callable[[float], object] = field(default_factory=lambda: threading.Event().wait)
    entry: Entry = IN_TURN
    read_objects: bool = False
    retry: RetryRules = field(default_factory=RetryRules)
    rules: Rules = field(default_factory=lambda: RULES)
    lease_seconds: float = 60.0

    def run(self, records: Sequence[Record]) -> BatchEnd:
        """Run one batch; partitions that it has not seen are begun at 0."""
        self.items = items_of(records, rules=self.rules)
        for item in self.items:
            self.begin(item.record.partition)
        return self.run_again()

    def run_again(self) -> BatchEnd:
        """Run what is left of the batch, as the worker does over a new connection."""
        end = BatchEnd()
        items = [item for item in self.items if item.record.offset >= self.positions[item.record.partition].next_offset]
        try:
            self._runner().run(items, positions=self.positions, end=end)
        finally:
            self.positions.update(end.positions)
        return end

    def run_carefully(self, records: Sequence[Record], outlived: MutableSet[Place]) -> BatchEnd:
        """Run records one by one, in partitions that have been begun."""
        end = BatchEnd()
        try:
            run_with_care(
                self._runner(),
                items_of(records),
                connection=self.connection,
                positions=self.positions,
                end=end,
                outlived=outlived,
                stopping=lambda: self.stopping,
            )
        finally:
            self.positions.update(end.positions)
        return end

    def begin(self, partition: Partition) -> None:
        """Give a partition a position at 0, unless it has one."""
        if partition in self.positions:
            return
        with psycopg.connect(self.url, autocommit=True) as other:
            other.execute(
                "INSERT INTO onceflow.progress (cluster_id, topic_id, partition, topic, next_offset, epoch, owner, clean,"
                " batch_end) VALUES (%s, %s, %s, %s, 0, 1, 'test', false, 0)",
                [CLUSTER, TOPIC_ID, partition.number, partition.topic],
            )
        self.positions[partition] = Position(TOPIC_ID, 1, 0, None)

    def redrive(self, turns: int = 1) -> list[BatchEnd]:
        """Try what is due, as the worker does between batches; return how each try ended."""
        ends: list[BatchEnd] = []
        redrive = self.redriving(note=ends.append)
        for _ in range(turns):
            redrive.turn()
        return ends

    def redriving(self, *, note: Callable[[BatchEnd], None] = lambda _end: None) -> Redrive:
        """The redrives of one process."""
        return Redrive(
            owner=f"bench-{id(self)}",
            lease_seconds=self.lease_seconds,
            connection=lambda: self.connection,
            runner=lambda _connection, entry: self._runner(entry),
            handlers=self.handlers,
            note=note,
            stopping=lambda: self.stopping,
        )

    def make_due(self) -> None:
        """Let all keys that wait for a time be due now, as a person may."""
        with psycopg.connect(self.url, autocommit=True) as other:
            other.execute("UPDATE onceflow.parked_key SET due_at = clock_timestamp() WHERE reason = 'retry'")

    def _runner(self, entry: Entry | None = None) -> BatchRunner:
        settings = AttemptSettings(
            run=HandlerSettings(
                self.handlers,
                LANES,
                100_000,
                self.batch_seconds_max,
                limits_setter(
                    lock_timeout_ms=2_000,
                    transaction_ms_max=30_000,
                    server_version=self.connection.info.server_version,
                ),
                lambda: self.stopping,
                RequestRules(RULES.accounts, self.handlers.effects),
                self.read_objects,
            ),
            cluster_id=CLUSTER,
            retry=self.retry,
        )
        return BatchRunner(
            self.connection,
            settings=settings,
            known=self.known,
            deadline=_NoDeadline(10.0),
            breaker=self.breaker,
            wait=self.wait,
            entry=entry or self.entry,
        )

    def rows(self, query: str, *parameters: Any) -> list[dict[str, Any]]:
        """Ask another connection, which sees only what is committed."""
        with psycopg.connect(self.url, row_factory=dict_row) as other:
            return other.execute(query.encode(), parameters).fetchall()

    def change(self, query: str, *parameters: Any) -> None:
        """Change something over another connection."""
        with psycopg.connect(self.url, autocommit=True) as other:
            other.execute(query.encode(), parameters)

    def states(self) -> dict[str, str]:
        """The state of each event."""
        return {row["event_id"]: row["state"] for row in self.rows("SELECT event_id, state FROM onceflow.inbox")}

    def outcomes(self) -> list[tuple[str, str]]:
        """(type, key) of all outcomes in the order of lane and sequence."""
        rows = self.rows("SELECT type, key FROM onceflow.outcome ORDER BY lane, seq")
        return [(row["type"], row["key"]) for row in rows]

    def quarantine(self) -> dict[int, str]:
        """Code by offset."""
        return {row["offset"]: row["code"] for row in self.rows('SELECT "offset", code FROM onceflow.quarantine')}

    def next_offset(self, partition: int = 0) -> int:
        [row] = self.rows("SELECT next_offset FROM onceflow.progress WHERE partition = %s", partition)
        return int(row["next_offset"])


class _NoDeadline(Deadline):
    """The test runner uses the alarm signal itself; the deadline is tried in a process of its own."""

    def __init__(self, seconds: float) -> None:
        del seconds
        self._usable = False


@pytest.fixture
def bench(fresh_database: str) -> Iterator[Callable[[Handlers], Bench]]:
    """Make a bench over a fresh database with lanes and a table for handlers."""
    with psycopg.connect(fresh_database, autocommit=True) as setup:
        setup.execute("CREATE TABLE public.ledger (event_id text PRIMARY KEY, note text)")
        for lane in range(LANES):
            setup.execute("INSERT INTO onceflow.lane (lane, topic_id) VALUES (%s, 'outcome-topic')", [lane])
    opened: list[Connection[Any]] = []

    def make(handlers: Handlers) -> Bench:
        handlers.check()
        connection = psycopg.connect(fresh_database)
        opened.append(connection)
        return Bench(fresh_database, connection, handlers)

    yield make
    for connection in opened:
        connection.close()


@pytest.fixture
def make_road(kafka_bootstrap: str, fresh_database: str, tmp_path: Path) -> MakeRoad:
    from tests.processor.processor_process import Road  # noqa: PLC0415 - that module uses this one's keys.

    def make(**settings: object) -> Road:
        return Road(kafka_bootstrap, fresh_database, tmp_path, **settings)  # type: ignore[arg-type]

    return make
