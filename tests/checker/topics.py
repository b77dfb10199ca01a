"""Raw topics read to their end.

Rule: read with a plain consumer that belongs to no group of the product, commits nothing and skips nothing; what
cannot be decoded is told as such, never left out.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.checker.expectation import OUTCOME_TYPES, read_body, wanted_outcome
from tests.checker.snapshot import EventEntry, Foreign, Identity, Outcome

READ_LIMIT_SECONDS = 120.0
PAGE_RECORDS = 500
PAGE_SECONDS = 0.1
ANSWER_SECONDS = 10.0
SOURCE_PARTS = 4
SHOWN_STEP = 1_000
"""A partition of the n-th topic is shown as n times this and its number, so that a position names its topic too."""

Isolation = Literal["read_committed", "read_uncommitted"]


def consumer(bootstrap: str, isolation: Isolation) -> Consumer:
    """Return a consumer for reading by assignment."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checker",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "check.crcs": True,
            "reconnect.backoff.max.ms": 500,
            "fetch.message.max.bytes": 4_000_000,
        }
    )


def partitions_of(reader: Consumer, topic: str) -> list[int]:
    """Return the partitions of a topic."""
    found = reader.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return sorted(found.partitions)


def bounds(reader: Consumer, topic: str) -> dict[int, tuple[int, int]]:
    """Return (log start, log end) of each partition, asked from the broker."""
    found = {}
    for partition in partitions_of(reader, topic):
        low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_SECONDS, cached=False)
        found[partition] = (low, high)
    return found


def read_topic(bootstrap: str, topic: str, *, isolation: Isolation) -> Iterator[Message]:
    """Yield every record of a topic, each partition to the end that it has when it is reached.

    Raises:
        KafkaException: for any error but "end of partition".
        TimeoutError: when the ends are not reached within ``READ_LIMIT_SECONDS``.
    """
    reader = consumer(bootstrap, isolation)
    try:
        waiting = set(partitions_of(reader, topic))
        reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in waiting])
        end = time.monotonic() + READ_LIMIT_SECONDS
        while waiting:
            if time.monotonic() > end:
                raise TimeoutError(f"{topic}: partitions {sorted(waiting)} not read within {READ_LIMIT_SECONDS} s")
            for message in reader.consume(PAGE_RECORDS, timeout=PAGE_SECONDS):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    waiting.discard(_partition(message))
                elif error.code() not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
                    raise KafkaException(error)
    finally:
        reader.close()


def shows_nothing(reader: Consumer, topic: str, *, partition: int, start: int) -> bool:
    """Tell whether a reader of committed records finds nothing from an offset to the end: markers and aborted records only.

    Raises:
        KafkaException: for any error but "end of partition".
    """
    reader.assign([TopicPartition(topic, partition, start)])
    end = time.monotonic() + ANSWER_SECONDS
    try:
        while time.monotonic() < end:
            message = reader.poll(PAGE_SECONDS)
            if message is None:
                continue
            error = message.error()
            if error is None:
                return False
            if error.code() == KafkaError._PARTITION_EOF:
                return True
            raise KafkaException(error)
    finally:
        reader.unassign()
    return False


def _partition(message: Message) -> int:
    partition = message.partition()
    assert partition is not None
    return partition


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


def _texts(message: Message) -> dict[str, str]:
    """Return the headers that are UTF-8 text; of a doubled one the first."""
    found: dict[str, str] = {}
    headers: list[tuple[str, Any]] = list(message.headers() or [])  # type: ignore[arg-type]  # the stub allows a dict too
    for name, raw in headers:
        if isinstance(raw, bytes) and name not in found:
            try:
                found[name] = raw.decode()
            except UnicodeDecodeError:
                continue
    return found


def _bytes(part: Any) -> bytes | None:
    return part.encode() if isinstance(part, str) else part


def shown_partition(topic_number: int, partition: int) -> int:
    """Return the number under which a partition stands in a snapshot; the bridge's own topic is number 0."""
    return topic_number * SHOWN_STEP + partition


def foreign_entry(message: Message, *, topic_number: int, default_account: str) -> EventEntry:
    """Return what a record says whose event stands in its value, by somebody who writes no headers of ours."""
    value = _bytes(message.value())
    body_identity, event_type, subject = read_body(value or b"")
    account, mode, event_id = body_identity
    identity: Identity | None = None
    if mode is not None and event_id is not None:
        identity = (account or default_account, mode, event_id)
    return EventEntry(
        partition=shown_partition(topic_number, _partition(message)),
        offset=_offset(message),
        key=_bytes(message.key()),
        body_sha256=None if value is None else hashlib.sha256(value).digest(),
        identity=identity,
        type=event_type,
        body_identity=body_identity,
        handled=event_type in OUTCOME_TYPES,
        wanted=wanted_outcome(event_type or "", subject),
    )


def event_entry(message: Message) -> EventEntry:
    """Return what a record of the event topic says."""
    texts = _texts(message)
    value = _bytes(message.value())
    source = texts.get("ce_source", "").split(":")
    identity: Identity | None = None
    if len(source) == SOURCE_PARTS and "ce_id" in texts:
        identity = (source[2], source[3], texts["ce_id"])
    body_identity, event_type, subject = read_body(value or b"")
    return EventEntry(
        partition=_partition(message),
        offset=_offset(message),
        key=_bytes(message.key()),
        body_sha256=None if value is None else hashlib.sha256(value).digest(),
        identity=identity,
        type=texts["ce_type"].removeprefix("com.stripe.") if "ce_type" in texts else None,
        body_identity=body_identity,
        handled=event_type in OUTCOME_TYPES,
        wanted=wanted_outcome(event_type or "", subject),
        told_sha256=told_digest(value) if value and texts.get("onceflow_source") == "reconciler" else None,
    )


def told_digest(value: bytes) -> bytes | None:
    """Return the digest of what an event says, whatever wrote it: its JSON with sorted keys, pending deliveries left out."""
    try:
        told = json.loads(value)
    except ValueError:
        return None
    told.pop("pending_webhooks", None)
    written = json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return b"\x01" + hashlib.sha256(written.encode()).digest()


def outcome_entry(message: Message) -> Outcome | Foreign:
    """Return what a record of the outcome topic says, ``Foreign`` when it is none of ours."""
    partition, offset = _partition(message), _offset(message)
    texts, value, key = _texts(message), _bytes(message.value()), _bytes(message.key())
    if value is None or key is None:
        return Foreign(partition, offset, "it has no key or no value")
    try:
        lane = int(texts["onceflow_lane"])
        if lane != partition:
            return Foreign(partition, offset, f"its header says lane {lane}")
        if texts["ce_subject"] != key.decode():
            return Foreign(partition, offset, "ce_subject is not its key")
        return Outcome(
            lane=lane,
            seq=int(texts["onceflow_sequence"]),
            outcome_id=texts["onceflow_outcome_id"],
            revision=int(texts["onceflow_revision"]),
            ce_id=texts["ce_id"],
            type=texts["ce_type"],
            key=key.decode(),
            value_sha256=hashlib.sha256(value).digest(),
            cause=texts["onceflow_cause"],
            created_at=datetime.fromisoformat(texts["ce_time"]),
            numbers=numbers_of(value),
            offset=offset,
            refill=texts.get("onceflow_refill") == "1",
        )
    except (KeyError, ValueError) as error:
        return Foreign(partition, offset, f"its headers cannot be read ({error})")


def numbers_of(value: bytes) -> tuple[tuple[str, int], ...]:
    """Return the integers at the top of an outcome's data, sorted by name."""
    try:
        data = json.loads(value)
    except ValueError:
        return ()
    if not isinstance(data, dict):
        return ()
    return tuple(sorted((name, number) for name, number in data.items() if type(number) is int))
