"""A few records in, all records out, through librdkafka."""

from __future__ import annotations

import logging
import uuid

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

LIMIT_SECONDS = 20.0

# A killed broker is what these tests are about: the library's complaints of it are not shown.
_silent = logging.getLogger("tests.embedded.silent")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


def create_topic(bootstrap: str) -> str:
    """Create a topic with one partition."""
    name = f"records.{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=_silent)
    admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1)])[name].result(LIMIT_SECONDS)
    return name


def write(bootstrap: str, topic: str, values: list[bytes]) -> None:
    """Write the values and wait for every report."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True}, logger=_silent)
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _message: failed.append(error) if error else None)
    assert producer.flush(LIMIT_SECONDS) == 0
    assert failed == []


def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """Read that many values from the start of the topic."""
    settings = {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "enable.auto.commit": False}
    consumer = Consumer(settings, logger=_silent)
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages: list[Message] = []
    while len(messages) < count:
        batch = consumer.consume(count - len(messages), timeout=LIMIT_SECONDS)
        assert batch, f"only {len(messages)} of {count} records within {LIMIT_SECONDS} s"
        messages.extend(batch)
    consumer.close()
    assert all(message.error() is None for message in messages)
    return [message.value() or b"" for message in messages]
