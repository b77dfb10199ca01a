"""One librdkafka producer.

Rule: every record that was produced gets its report, also when the producer has failed for good and is being replaced:
a retired producer is polled until its last record is answered, and only then closed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from onceflow_producer.kafka_errors import UNKNOWN_TOPIC
from onceflow_schemas.failure import Misconfigured

RETIRED_POLL_SECONDS = 0.1
KAFKA_LOGGER = "onceflow.bridge.kafka"
"""What the Kafka clients of the bridge say is logged under this name."""

_log = structlog.get_logger("onceflow.bridge")

DeliveryCallback = Callable[[KafkaError | None, Message], None]


class ProducerHandle:
    """A running producer; the owner of the event loop polls it, nothing else does.

    Reports are taken in the loop's own thread on purpose: a poll thread competes with the loop for the interpreter
    at each report, which cost a sixth of all CPU time (docs/decisions).

    Args:
        properties: as ``producer_properties`` made them.
        on_error: called with each error of the client (also fatal ones); must not raise.

    Raises:
        Misconfigured: the client does not know a property, or refuses its value.
    """

    def __init__(self, properties: Mapping[str, Any], *, on_error: Callable[[KafkaError], None]) -> None:
        self._on_error = on_error
        settings = {**properties, "error_cb": on_error, "logger": logging.getLogger(KAFKA_LOGGER)}
        try:
            self._producer = Producer(settings)
        except KafkaException as refused:
            raise Misconfigured("settings_invalid", f"kafka: {refused.args[0].str()}") from refused

    def __len__(self) -> int:
        return len(self._producer)

    def produce(
        self,
        topic: str,
        *,
        key: bytes,
        value: bytes,
        headers: list[tuple[str, bytes]],
        on_delivery: DeliveryCallback,
    ) -> None:
        """Hand one record over.

        Raises:
            BufferError: the local queue is full.
            KafkaException: the record is too large, or the producer has failed.
        """
        # A list of bytes is what the client's type of headers means; lists are invariant to the checker.
        self._producer.produce(topic, value, key, headers=cast("Any", headers), on_delivery=on_delivery)

    def partition_count(self, topic: str, *, timeout_seconds: float) -> int:
        """Ask the broker about the topic; 0 when it does not exist.

        Asking through the producer also tells it about partitions that were added meanwhile.

        Raises:
            KafkaException: the broker did not answer, or refused.
        """
        found = self._producer.list_topics(topic, timeout=timeout_seconds).topics[topic]
        if found.error is not None and found.error.code() != UNKNOWN_TOPIC:
            raise KafkaException(found.error)
        return len(found.partitions)

    def poll(self, timeout_seconds: float = 0.0) -> None:
        """Take the reports and errors that are there; with 0 it never waits."""
        try:
            self._producer.poll(timeout_seconds)
        except KafkaException as failure:
            # A fatal error rises here instead of going to error_cb.
            self._on_error(failure.args[0])

    def retire(self, *, purge: bool, within_seconds: float) -> threading.Thread:
        """Answer every record in hand, then close; returns at once with the thread that does it.

        Args:
            purge: give up what is in hand (its reports say so) instead of delivering it.
            within_seconds: after this long what is left is given up anyway.
        """
        thread = threading.Thread(
            target=self._retire,
            kwargs={"purge": purge, "give_up_at": time.monotonic() + within_seconds},
            name="bridge-retire",
            daemon=True,
        )
        thread.start()
        return thread

    def _retire(self, *, purge: bool, give_up_at: float) -> None:
        if purge:
            self._producer.purge()
        while len(self._producer) and time.monotonic() < give_up_at:
            self.poll(RETIRED_POLL_SECONDS)
        if len(self._producer):
            _log.warning("bridge_records_given_up", records=len(self._producer))
            self._producer.purge()
        self.poll(RETIRED_POLL_SECONDS)
        self._producer.close()
