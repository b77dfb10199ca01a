"""Hands events to Kafka and answers each with what the broker said.

Rule: nothing counts as published without a delivery report, and every publish is answered by its deadline.  A report
that is late or failed means "unknown", never "not written": the sender repeats and the processor knows the repeat.
The event loop never waits for Kafka: while records are in hand it looks for reports once per millisecond, and takes all
that are there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message

from onceflow_producer.broker_watch import BrokerWatch
from onceflow_producer.failpoint import hit
from onceflow_producer.kafka_errors import TOO_LARGE, refusal_code
from onceflow_producer.metrics import BridgeMetrics
from onceflow_producer.sizes import RECORD_OVERHEAD_BYTES
from onceflow_schemas.event_record import OutgoingRecord

IN_FLIGHT_MAX = 4_096
POLL_SECONDS = 0.001
IDLE_POLL_SECONDS = 0.2
"""With nothing in hand only the client's errors can come."""
SWEEP_SECONDS = 0.25
"""How often overdue publishes are looked for; so much later than its deadline an answer may come."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The broker has the record, on all replicas that it asks for."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class NotPublished:
    """There is no proof that the broker has the record; ``code`` is a refusal's code."""

    code: str
    detail: str


Published = Acknowledged | NotPublished


@dataclass(slots=True, eq=False)
class _InFlight:
    """One record that waits for its report."""

    collect: Callable[[_Report], None]
    future: asyncio.Future[Published]
    started: float
    deadline: float
    record_bytes: int

    def take_report(self, error: KafkaError | None, message: Message) -> None:
        """Receive the delivery report: in the loop's thread, or in another one while its producer is retired."""
        partition, offset = message.partition(), message.offset()
        self.collect(_Report(self, error, partition, offset))


class _Report(NamedTuple):
    entry: _InFlight
    error: KafkaError | None
    partition: int | None
    offset: int | None


class Publisher:
    """Publishes to one topic from one event loop; all methods are called in that loop.

    Args:
        watch: holds the producer in use and knows the state of the broker.
        topic: the event topic.
        metrics: where durations and late reports are counted.
        in_flight_max: more publishes at once are refused.
    """

    def __init__(
        self, watch: BrokerWatch, *, topic: str, metrics: BridgeMetrics, in_flight_max: int = IN_FLIGHT_MAX
    ) -> None:
        self._watch = watch
        self._topic = topic
        self._metrics = metrics
        self._in_flight_max = in_flight_max
        self._loop = asyncio.get_running_loop()
        self._in_flight: set[_InFlight] = set()
        self._reports: deque[_Report] = deque()
        self._poll_timer = self._loop.call_later(IDLE_POLL_SECONDS, self._poll)
        self._sweep_timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    @property
    def in_flight(self) -> int:
        """Number of publishes that wait for their answer."""
        return len(self._in_flight)

    def publish(self, record: OutgoingRecord, *, deadline: float) -> asyncio.Future[Published] | NotPublished:
        """Hand one record over.

        Args:
            record: key, value and headers.
            deadline: loop time by which the future has a result, whatever Kafka does.
        """
        closed = self._watch.closed
        if closed is not None:
            return NotPublished(closed.code, closed.detail)
        if len(self._in_flight) >= self._in_flight_max:
            return NotPublished("queue_full", "too many events wait for the broker")
        entry = _InFlight(
            self._reports.append, self._loop.create_future(), self._loop.time(), deadline, len(record.value)
        )
        hit("bridge.before_produce")
        try:
            self._watch.producer.produce(
                self._topic,
                key=record.key,
                value=record.value,
                headers=record.headers,
                on_delivery=entry.take_report,
            )
        except BufferError:
            return NotPublished("queue_full", "the producer's queue is full")
        except KafkaException as failure:
            return self._not_produced(failure.args[0], entry.record_bytes)
        hit("bridge.after_produce")
        if not self._in_flight:
            self._poll_timer.cancel()
            self._poll_timer = self._loop.call_later(POLL_SECONDS, self._poll)
        self._in_flight.add(entry)
        return entry.future

    def _not_produced(self, error: KafkaError, record_bytes: int) -> NotPublished:
        if error.code() == TOO_LARGE:
            # The client keeps to the limit that was read last; somebody may have raised the topic's since.
            self._watch.size_refused(record_bytes + RECORD_OVERHEAD_BYTES)
            return NotPublished("record_too_large", "the record is larger than the topic takes")
        self._watch.note_client_error(error)
        return NotPublished(refusal_code(error.code()), f"the producer did not take the record: {error.name()}")

    def _poll(self) -> None:
        self._watch.producer.poll()
        if self._reports:
            self._settle()
        self._poll_timer = self._loop.call_later(POLL_SECONDS if self._in_flight else IDLE_POLL_SECONDS, self._poll)

    def _settle(self) -> None:
        now = self._loop.time()
        while self._reports:
            entry, error, partition, offset = self._reports.popleft()
            if error is None:
                self._watch.note_delivery()
            if entry not in self._in_flight:
                self._metrics.late_reports.inc()
                continue
            self._in_flight.discard(entry)
            if error is not None:
                entry.future.set_result(self._not_delivered(error, entry.record_bytes))
                continue
            assert partition is not None
            assert offset is not None
            hit("bridge.after_ack")
            self._metrics.publish_seconds.observe(now - entry.started)
            entry.future.set_result(Acknowledged(partition, offset))

    def _not_delivered(self, error: KafkaError, record_bytes: int) -> NotPublished:
        if error.code() == TOO_LARGE:
            # The broker refuses a whole batch: a record that would fit alone was only a neighbour of the large one.
            if self._watch.size_refused(record_bytes + RECORD_OVERHEAD_BYTES):
                return NotPublished("record_too_large", "the topic does not take a record of this size")
            return NotPublished("broker_unavailable", "the record was in one batch with a record too large")
        self._watch.note_delivery_error(error)
        return NotPublished(refusal_code(error.code()), f"the broker did not confirm: {error.name()}")

    def _sweep(self) -> None:
        now = self._loop.time()
        for entry in [entry for entry in self._in_flight if entry.deadline <= now]:
            self._in_flight.discard(entry)
            entry.future.set_result(NotPublished("broker_timeout", "the broker did not confirm within the deadline"))
        self._sweep_timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    async def close(self, *, within_seconds: float) -> None:
        """Wait for the reports in hand, then stop the producer."""
        # From here on the producer is polled by the thread that closes it, until the last report is there.
        self._poll_timer.cancel()
        self._sweep_timer.cancel()
        await asyncio.to_thread(self._watch.close, within_seconds=within_seconds)
        self._settle()
