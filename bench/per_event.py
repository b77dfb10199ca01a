"""A consumer with one transaction per event, as one writes it by hand: the measure of the batch transaction.

Rule: it does the same work per event (decode, attestation, handler, outcome) with the same functions on the same
tables, and ends each event with its own COMMIT.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any, cast

import psycopg
from confluent_kafka import Consumer, Message, TopicPartition

import bench.handlers as registries
from bench.bodies import ATTESTATION_KEY, DEPLOYMENT
from bench.statements import statements
from onceflow_processor.effects import Effects
from onceflow_processor.event import Event
from onceflow_processor.facts import Facts
from onceflow_processor.kafka_client import admin_client, cluster_id, topic_id
from onceflow_processor.tx import Tx
from onceflow_schemas.envelope import read_envelope
from onceflow_schemas.event_record import EventRecord, open_event

LANES = 6
VALUE_BYTES_MAX = 1_000_000
FETCH_RECORDS = 1_000
FETCH_SECONDS = 0.5
_SQL = statements("per_event")


class PerEvent:
    """Consumes a topic until it is ended."""

    def __init__(self, *, bootstrap: str, database_url: str, topic: str, handlers: str) -> None:
        admin = admin_client({"bootstrap.servers": bootstrap})
        self._topic = topic
        self._cluster_id = cluster_id(admin)
        self._topic_id = topic_id(admin, topic)
        self._keys = {ATTESTATION_KEY.id: ATTESTATION_KEY}
        self._handlers = getattr(registries, handlers)
        self._connection = psycopg.connect(database_url, autocommit=True)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "per-event",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
            }
        )

    def run(self) -> None:
        """Consume for ever."""
        partitions = self._consumer.list_topics(self._topic, timeout=10).topics[self._topic].partitions
        for number in partitions:
            place = {"cluster_id": self._cluster_id, "topic_id": self._topic_id, "partition": number}
            self._connection.execute(_SQL["begin_partition"], {**place, "topic": self._topic})
        self._consumer.assign([TopicPartition(self._topic, number, 0) for number in partitions])
        while True:
            for message in self._consumer.consume(FETCH_RECORDS, timeout=FETCH_SECONDS):
                self._take(message)

    def _take(self, message: Message) -> None:
        assert message.error() is None, message.error()
        body = message.value() or b""
        headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
        record = open_event(topic=self._topic, value=body, headers=headers, deployment=DEPLOYMENT, keys=self._keys)
        assert isinstance(record, EventRecord), record
        envelope = read_envelope(body)
        assert envelope.created is not None
        assert envelope.body is not None
        event = Event(
            identity=record.identity,
            type=record.type,
            created=envelope.created,
            received_at=record.received_at,
            api_version=envelope.api_version,
            body=envelope.body,
            raw=body,
        )
        with self._connection.transaction():
            if self._mark(message, record, body, envelope.api_version):
                self._handle(event)
            place = (message.partition(),)
            next_offset = (message.offset() or 0) + 1
            self._connection.execute(_SQL["progress"], [next_offset, self._cluster_id, self._topic_id, *place])

    def _mark(self, message: Message, record: EventRecord, body: bytes, api_version: str | None) -> bool:
        identity = record.identity
        parameters: list[Any] = [
            identity.account,
            identity.mode,
            identity.event_id,
            record.type,
            record.object_id,
            api_version,
        ]
        parameters += [self._topic_id, message.partition(), message.offset(), hashlib.sha256(body).digest()]
        parameters += [record.created_text, record.received_at_text]
        return self._connection.execute(_SQL["marker"], parameters).rowcount == 1

    def _handle(self, event: Event) -> None:
        effects = Effects()
        for handler in self._handlers.for_type(event.type):
            transaction = Tx(
                self._connection,
                cause=event.cause,
                handler=handler.name,
                effects=effects,
                facts=Facts(),
                lane_count=LANES,
                value_bytes_max=VALUE_BYTES_MAX,
            )
            handler.function(event, transaction)
        for one in effects.outcomes:
            row: list[Any] = [one.lane, one.outcome_id, one.outcome_id, one.type, one.key, one.value, one.cause]
            self._connection.execute(_SQL["outcome"], row)


if __name__ == "__main__":
    PerEvent(**json.loads(sys.argv[1])).run()
