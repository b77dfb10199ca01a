"""Topics and tables filled by hand as the product should fill them, so that the reader of raw ledgers can be tried.

Rule: no product code writes here.  ``Hand`` puts a sound world into a real topic and a real database, with one fault
where the test asks for it.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime

import psycopg
from confluent_kafka import Producer

from tests.checker.judge_outcomes import murmur2
from tests.checker.snapshot import Delivery

ACCOUNT = "acct_hand"
LANES = 6
FLUSH_SECONDS = 20.0
WRITTEN_AT = datetime(2026, 1, 1, 12, 0, 0, 250, tzinfo=UTC)


def failed_payment(number: int) -> bytes:
    """Return the body of an event that has exactly one outcome."""
    event = {
        "id": f"evt_hand{number}",
        "object": "event",
        "livemode": False,
        "type": "payment_intent.payment_failed",
        "created": 1767225600,
        "data": {"object": {"id": f"pi_hand{number}", "object": "payment_intent"}},
    }
    return json.dumps(event).encode()


@dataclass(slots=True)
class Hand:
    """Writes events, markers and outcomes; ``outcomes`` collects (lane, seq, number) in publishing order."""

    bootstrap: str
    database_url: str
    event_topic: str
    outcome_topic: str
    deliveries: list[Delivery] = field(default_factory=list)
    outcomes: list[tuple[int, int, int]] = field(default_factory=list)
    heads: dict[int, int] = field(default_factory=dict)

    def producer(self) -> Producer:
        """A producer that loses nothing and keeps the order."""
        return Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})

    def write_world(self, count: int) -> None:
        """Put ``count`` events into partition 0, mark them all as processed, and write their outcomes unpublished."""
        producer = self.producer()
        with psycopg.connect(self.database_url) as connection:
            for lane in range(LANES):
                connection.execute("INSERT INTO onceflow.lane (lane, topic_id) VALUES (%s, 'hand')", [lane])
            for number in range(count):
                body = failed_payment(number)
                headers: list[tuple[str, str | bytes | None]] = [
                    ("ce_id", f"evt_hand{number}".encode()),
                    ("ce_source", f"urn:stripe:{ACCOUNT}:test".encode()),
                    ("ce_type", b"com.stripe.payment_intent.payment_failed"),
                ]
                producer.produce(self.event_topic, body, b"k", partition=0, headers=headers)
                self.deliveries.append(Delivery(hashlib.sha256(body).digest(), 200))
                self._mark(connection, number, body)
                self._write_outcome(connection, number)
            connection.execute(
                "INSERT INTO onceflow.progress (cluster_id, topic_id, partition, topic, next_offset, epoch, owner, clean,"
                " batch_end) VALUES ('c', 'hand', 0, %s, %s, 1, 'hand', true, %s)",
                [self.event_topic, count, count],
            )
        assert producer.flush(FLUSH_SECONDS) == 0

    def _mark(self, connection: psycopg.Connection[tuple[object, ...]], number: int, body: bytes) -> None:
        connection.execute(
            "INSERT INTO onceflow.inbox (account, mode, event_id, state, type, object_id, topic_id, partition,"
            ' "offset", body_sha256, received_at, handler_set) VALUES'
            " (%s, 'test', %s, 'processed', 'payment_intent.payment_failed', %s, 'hand', 0, %s, %s, now(), 'h')",
            [ACCOUNT, f"evt_hand{number}", f"pi_hand{number}", number, hashlib.sha256(body).digest()],
        )

    def _write_outcome(self, connection: psycopg.Connection[tuple[object, ...]], number: int) -> None:
        key = f"pi_hand{number}"
        lane = (murmur2(key.encode()) & 0x7FFFFFFF) % LANES
        seq = self.heads[lane] = self.heads.get(lane, 0) + 1
        connection.execute(
            "INSERT INTO onceflow.outcome (lane, seq, outcome_id, ce_id, type, key, value, cause, created_at)"
            " VALUES (%s, %s, %s, %s, 'payment.failed', %s, %s, %s, %s)",
            [lane, seq, _id(number), _id(number), key, _value(number), _cause(number), WRITTEN_AT],
        )
        connection.execute("UPDATE onceflow.lane SET head_seq = %s WHERE lane = %s", [seq, lane])
        self.outcomes.append((lane, seq, number))

    def publish(self, order: list[tuple[int, int, int]]) -> None:
        """Publish outcomes in this order in one transaction, and say in the table that all are published."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": f"hand-{uuid.uuid4()}"})
        producer.init_transactions(FLUSH_SECONDS)
        producer.begin_transaction()
        for lane, seq, number in order:
            texts = {
                "ce_id": str(_id(number)),
                "ce_type": "payment.failed",
                "ce_subject": f"pi_hand{number}",
                "ce_time": WRITTEN_AT.isoformat(timespec="microseconds").replace("+00:00", "Z"),
                "onceflow_lane": str(lane),
                "onceflow_sequence": str(seq),
                "onceflow_cause": _cause(number),
                "onceflow_outcome_id": str(_id(number)),
                "onceflow_revision": "1",
            }
            headers: list[tuple[str, str | bytes | None]] = [(name, text.encode()) for name, text in texts.items()]
            producer.produce(
                self.outcome_topic, _value(number), f"pi_hand{number}".encode(), partition=lane, headers=headers
            )
        producer.commit_transaction(FLUSH_SECONDS)
        with psycopg.connect(self.database_url) as connection:
            connection.execute("UPDATE onceflow.lane SET published_seq = head_seq")


def _id(number: int) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_URL, f"hand/{number}")


def _value(number: int) -> bytes:
    return json.dumps({"payment_intent": f"pi_hand{number}"}).encode()


def _cause(number: int) -> str:
    return f"event:{ACCOUNT}/test/evt_hand{number}"
