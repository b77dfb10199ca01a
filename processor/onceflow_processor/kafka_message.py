"""The client library's messages as our records."""

from __future__ import annotations

from typing import cast

from confluent_kafka import Message

from onceflow_processor.records import Headers, Partition, Record


def partition_of(message: Message) -> Partition:
    """Return the partition that a message is from."""
    topic, number = message.topic(), message.partition()
    assert topic is not None and number is not None, "a message has both"  # noqa: PT018 - one fact
    return Partition(topic, number)


def record_of(message: Message, *, generation: int) -> Record:
    """Return a message without an error as a record.

    Args:
        message: with an offset.
        generation: of its partition's assignment.
    """
    offset = message.offset()
    assert offset is not None, "a message without an error has one"
    return Record(
        partition=partition_of(message),
        offset=offset,
        timestamp_ms=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=cast("Headers", message.headers() or []),
        generation=generation,
    )
