"""The demo's view of the truth: both topics read raw, and the tables by the queries of ``demo_count.sql``.

Rule: the reader belongs to no consumer group of the product and believes no counter of it; it sees the outcome topic
as any consumer does, under read_committed.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from onceflow.demo.operation_count import Movement, OperationEntry
from onceflow.demo.running_system import Ready
from onceflow_schemas.sql import queries
from onceflow_simulator import SimulatorClient

SETTLE_SECONDS = 90.0
READ_SECONDS = 30.0
ANSWER_SECONDS = 10.0
CONNECT_SECONDS = 5
STEP_SECONDS = 0.2
PAGE_RECORDS = 500
PAGE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class TopicEvent:
    """A record of the event topic: its body's hash, and ``<account>/<mode>/<event id>`` from its headers."""

    digest: bytes
    identity: str


@dataclass(frozen=True, slots=True)
class OutcomeEntry:
    """An outcome, as a row of the table or as a record of the topic; ``amount`` is read from records only."""

    lane: int
    seq: int
    ce_id: str
    type: str
    key: str
    cause: str
    digest: bytes
    amount: int = 0
    currency: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A webhook that the simulated Stripe sent; ``status`` None when the connection broke before the answer."""

    event_id: str
    status: int | None


@dataclass(frozen=True, slots=True)
class Ledgers:
    """All that was found: both topics, the tables, and the simulated Stripe's own books."""

    events: list[TopicEvent]
    published: list[OutcomeEntry]
    markers: dict[str, str]
    quarantined: list[tuple[str, str, bytes]]
    written: list[OutcomeEntry]
    operations: Sequence[OperationEntry] = ()
    movements: Sequence[Movement] = ()
    deliveries: Sequence[Delivery] = ()


def wait_until_settled(where: Callable[[], Ready]) -> str | None:
    """Wait until every record is done and every outcome published; return why it is not, None when it is.

    Args:
        where: returns the addresses as they are now; a service that was killed may have another one.
    """
    end = time.monotonic() + SETTLE_SECONDS
    pause = threading.Event()
    reader = open_reader(where().kafka_bootstrap)
    try:
        while True:
            reason = _unfinished(where(), reader)
            if reason is None or time.monotonic() > end:
                return reason
            pause.wait(STEP_SECONDS)
    finally:
        reader.close()


def _unfinished(ready: Ready, reader: Consumer) -> str | None:
    sql = queries("demo_count")
    try:
        waiting = SimulatorClient(ready.stripe_api_base).state()["deliveries_waiting"]
        ends = _ends(reader, ready.event_topic)
        with psycopg.connect(ready.database_url, connect_timeout=CONNECT_SECONDS) as connection:
            reached: dict[int, int] = dict(connection.execute(sql["progress"], {"topic": ready.event_topic}).fetchall())
            reasons = connection.execute(sql["unfinished"]).fetchall()
    except (OSError, psycopg.OperationalError, KafkaException) as error:
        return f"a service does not answer: {error}"
    if waiting:
        return f"{waiting} webhooks of the simulated Stripe are on their way"
    for partition, end in ends.items():
        if reached.get(partition, 0) < end:
            return f"partition {partition} is done up to {reached.get(partition, 0)} of {end}"
    return str(reasons[0][0]) if reasons else None


def read_ledgers(ready: Ready) -> Ledgers:
    """Read everything once; the system should be settled.

    Raises:
        KafkaException: the broker does not answer.
        psycopg.Error: the database does not answer.
        TimeoutError: a topic could not be read to its end in time.
    """
    sql = queries("demo_count")
    with psycopg.connect(ready.database_url, connect_timeout=CONNECT_SECONDS) as connection:
        markers = {
            f"{account}/{mode}/{event_id}": state
            for account, mode, event_id, state in connection.execute(sql["markers"])
        }
        quarantined = [
            (event_id, code, bytes(digest or b"")) for event_id, code, digest in connection.execute(sql["quarantined"])
        ]
        written = [
            OutcomeEntry(lane, seq, ce_id, kind, key, cause, bytes(digest))
            for lane, seq, ce_id, kind, key, cause, digest in connection.execute(sql["outcomes"])
        ]
        operations = [OperationEntry(*row) for row in connection.execute(sql["operations"])]
    stripe = SimulatorClient(ready.stripe_api_base)
    return Ledgers(
        events=[_event(message) for message in _read(ready.kafka_bootstrap, ready.event_topic)],
        published=[_outcome(message) for message in _read(ready.kafka_bootstrap, ready.outcome_topic)],
        markers=markers,
        quarantined=quarantined,
        written=written,
        operations=operations,
        movements=[_movement(entry) for entry in stripe.ledger().entries],
        deliveries=[Delivery(one["event"], one["status"]) for one in stripe.deliveries()],
    )


def open_reader(bootstrap: str) -> Consumer:
    """Return a consumer for reading by assignment, which tells each partition's end."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "onceflow-demo-count",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )


def partitions_of(reader: Consumer, topic: str) -> list[int]:
    """Return the partitions of a topic."""
    return sorted(reader.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic].partitions)


def _ends(reader: Consumer, topic: str) -> dict[int, int]:
    return {
        partition: reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_SECONDS, cached=False)[
            1
        ]
        for partition in partitions_of(reader, topic)
    }


def _read(bootstrap: str, topic: str) -> Iterator[Message]:
    """Yield the records of each partition up to its end."""
    reader = open_reader(bootstrap)
    end = time.monotonic() + READ_SECONDS
    try:
        waiting = set(partitions_of(reader, topic))
        reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in waiting])
        while waiting:
            if time.monotonic() > end:
                raise TimeoutError(f"{topic} was not read to its end within {READ_SECONDS:.0f} s")
            for message in reader.consume(PAGE_RECORDS, timeout=PAGE_SECONDS):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - a public constant
                    waiting.discard(message.partition() or 0)
                elif not error.retriable():
                    raise KafkaException(error)
    finally:
        reader.close()


def _texts(message: Message) -> dict[str, str]:
    headers: list[tuple[str, Any]] = list(message.headers() or [])  # type: ignore[arg-type]  # the stub allows a dict
    return {name: raw.decode("utf-8", "replace") for name, raw in headers if isinstance(raw, bytes)}


def _movement(entry: Mapping[str, Any]) -> Movement:
    operation = entry["metadata"].get("onceflow_operation", "")
    return Movement(entry["kind"], operation, entry["amount"], entry["currency"])


def _event(message: Message) -> TopicEvent:
    texts = _texts(message)
    source = texts.get("ce_source", "").removeprefix("urn:stripe:").replace(":", "/")
    value: Any = message.value()
    return TopicEvent(hashlib.sha256(value or b"").digest(), f"{source}/{texts.get('ce_id')}")


def _outcome(message: Message) -> OutcomeEntry:
    """Read a record; one that carries no headers of ours gets sequence 0 and so is counted as foreign."""
    texts = _texts(message)
    value: Any = message.value() or b"{}"
    data = orjson.loads(value)
    return OutcomeEntry(
        lane=message.partition() or 0,
        seq=int(texts.get("onceflow_sequence", "0")),
        ce_id=texts.get("ce_id", ""),
        type=texts.get("ce_type", ""),
        key=texts.get("ce_subject", ""),
        cause=texts.get("onceflow_cause", ""),
        digest=hashlib.sha256(value).digest(),
        amount=int(data.get("amount") or 0),
        currency=str(data.get("currency") or ""),
    )
