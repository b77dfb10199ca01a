"""One running ``onceflow up`` for all bad inputs, reached as an outsider reaches it."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from psycopg.rows import dict_row

from onceflow.demo.running_system import RunningSystem
from onceflow.settings import environment_for_child, process_environment
from tests.checker.waiting import wait_for

WAIT_SECONDS = 60.0
CREATED = 1767225600


class Outside:
    """What a sender, a writer to the bus and an operator can do and see."""

    def __init__(self, system: RunningSystem) -> None:
        self.system = system
        self.ready = system.ready

    def post(self, body: bytes, *, header: str | None = None, secret: str | None = None) -> int:
        """Send a body, signed unless a header is given; return the answer's status."""
        now = int(time.time())
        mac = hmac.new((secret or self.ready.webhook_secret).encode(), b"%d." % now + body, hashlib.sha256).hexdigest()
        signature = f"t={now},v1={mac}" if header is None else header
        request = urllib.request.Request(self.ready.webhook_url, body, {"Stripe-Signature": signature})
        try:
            return int(urllib.request.urlopen(request, timeout=20).status)
        except urllib.error.HTTPError as error:
            return error.code

    def publish(self, value: bytes | None, *, key: bytes | None = b"k", headers: Any = ()) -> tuple[int, int]:
        """Write to the event topic as anybody with the right to do so; return (partition, offset)."""
        placed: list[tuple[int, int]] = []

        def report(error: KafkaError | None, message: Message) -> None:
            partition, offset = message.partition(), message.offset()
            assert error is None, error
            assert partition is not None
            assert offset is not None
            placed.append((partition, offset))

        producer = Producer({"bootstrap.servers": self.ready.kafka_bootstrap, "message.max.bytes": 2_000_000})
        producer.produce(self.ready.event_topic, value, key, headers=list(headers), on_delivery=report)
        producer.flush(20)
        return placed[0]

    def record_of(self, event_id: str) -> Any:
        """The record of an event that the processor has seen, as it stands in the topic."""
        [marker] = self.rows('SELECT partition, "offset" FROM onceflow.inbox WHERE event_id = %s', event_id)
        consumer = Consumer({"bootstrap.servers": self.ready.kafka_bootstrap, "group.id": "unused"})
        try:
            consumer.assign([TopicPartition(self.ready.event_topic, marker["partition"], marker["offset"])])
            message = consumer.poll(20)
            assert message is not None
            assert message.error() is None
            return message
        finally:
            consumer.close()

    def rows(self, query: str, *parameters: Any) -> list[dict[str, Any]]:
        with psycopg.connect(self.ready.database_url, row_factory=dict_row) as connection:
            return connection.execute(query.encode(), parameters).fetchall()

    def state(self, event_id: str) -> str:
        """Wait for an event's state."""
        query = "SELECT state FROM onceflow.inbox WHERE event_id = %s"
        wait_for(lambda: bool(self.rows(query, event_id)), limit_seconds=WAIT_SECONDS, what=f"a state of {event_id}")
        return str(self.rows(query, event_id)[0]["state"])

    def quarantined(self, event_id: str) -> dict[str, Any]:
        """Wait for an event in quarantine; return its row."""
        assert self.state(event_id) == "quarantined"
        [row] = self.rows("SELECT * FROM onceflow.quarantine WHERE event_id = %s", event_id)
        return row

    def quarantined_at(self, place: tuple[int, int]) -> dict[str, Any]:
        """Wait for a record in quarantine; return its row."""
        query = 'SELECT * FROM onceflow.quarantine WHERE partition = %s AND "offset" = %s'
        wait_for(lambda: bool(self.rows(query, *place)), limit_seconds=WAIT_SECONDS, what=f"a row for {place}")
        return self.rows(query, *place)[0]

    def outcomes(self, event_id: str) -> list[dict[str, Any]]:
        return self.rows("SELECT * FROM onceflow.outcome WHERE cause LIKE %s ORDER BY seq", f"%/{event_id}")


@pytest.fixture(scope="package")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    environment = environment_for_child(process_environment(), {}, overrides={})
    with RunningSystem(tmp_path_factory.mktemp("bad-input"), environment=environment) as system:
        system.start()
        yield Outside(system)


_numbers = iter(range(10**6))


def new_id(prefix: str = "evt") -> str:
    """An id that no other test has."""
    return f"{prefix}_bad{next(_numbers)}x{time.monotonic_ns()}"


def event(event_id: str, event_type: str, subject: Any, **extra: Any) -> dict[str, Any]:
    return {
        "id": event_id,
        "object": "event",
        "api_version": "2024-06-20",
        "created": CREATED,
        "livemode": False,
        "pending_webhooks": 1,
        "request": {"id": None, "idempotency_key": None},
        "type": event_type,
        "data": {"object": subject},
        **extra,
    }


def payment(event_id: str, **extra: Any) -> dict[str, Any]:
    """A payment that succeeded; ``extra`` goes into the payment intent."""
    intent = {"id": new_id("pi"), "object": "payment_intent", "amount": 1099, "currency": "eur", **extra}
    return event(event_id, "payment_intent.succeeded", intent)


def dump(value: Any) -> bytes:
    return json.dumps(value).encode()


def body_id(body: bytes) -> str:
    """The id that a body without a usable one is kept under."""
    return "sha256:" + hashlib.sha256(body).hexdigest()
