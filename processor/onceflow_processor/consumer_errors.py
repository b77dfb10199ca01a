"""What the Kafka consumer says of itself: counted, told now and then, and refusals kept.

Rule: a broker that is away says the same thing many times a second; one line of a kind in ten seconds is enough.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
from confluent_kafka import Consumer, KafkaError, TopicPartition

from onceflow_producer.kafka_errors import REFUSALS
from onceflow_producer.repeat_limit import RepeatLimit

Rebalanced = Callable[[Consumer, list[TopicPartition]], None]

log = structlog.get_logger("onceflow.processor")


def whole(callback: Rebalanced) -> Rebalanced:
    """Return the callback so that what it raises can be caught outside of the client.

    An exception that C code raised is finished by Python (before 3.12) only when somebody catches it.  The client passes on
    its unfinished content, such as a bare ``KafkaError``, which is no exception: no ``except`` would see it, and the
    consume thread would end in silence.
    """

    def call(consumer: Consumer, places: list[TopicPartition]) -> None:
        try:
            callback(consumer, places)
        except BaseException:  # noqa: TRY203 - to catch it is what finishes it.
            raise

    return call


class ConsumerErrors:
    """The consumer's error callback; ``refusal`` is the last one, because messages say only that it is fatal."""

    def __init__(self, count: Callable[[str], None]) -> None:
        self._count = count
        self._told = RepeatLimit()
        self.refusal: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """Take one error."""
        if error.code() in REFUSALS:
            self.refusal = error
        self._count("client_error")
        left_out = self._told.admit((error.name(),), now=time.monotonic())
        if left_out is not None:
            log.warning("kafka_error", code=error.name(), detail=error.str(), suppressed=left_out)
