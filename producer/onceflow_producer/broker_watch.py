"""Watches the broker, and holds the producer in use.

Rule: whatever goes wrong between us and Kafka becomes a visible reason of "not ready" and heals without a restart; a
producer that has failed for good is replaced, never used again and never left as it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import structlog
from confluent_kafka import KafkaError, KafkaException

from onceflow_producer.broker_state import STALL_AFTER_SECONDS, BrokerState, Reason, closing_reason, reasons
from onceflow_producer.kafka_errors import BROKERS_DOWN, CREDENTIAL_ERRORS, FATAL, GIVEN_UP, NOT_ANSWERED, WRITE_ERRORS
from onceflow_producer.kafka_properties import producer_properties
from onceflow_producer.metrics import BridgeMetrics
from onceflow_producer.producer_handle import ProducerHandle
from onceflow_producer.sizes import TOPIC_BYTES_DEFAULT, SizeLimits, producer_bytes
from onceflow_producer.topic_limit import read_topic_bytes

PROBE_SECONDS = 0.5
PROBE_TIMEOUT_SECONDS = 1.0
RENEWAL_PAUSE_SECONDS = 1.0
"""A producer that fails again at once is not replaced more often than this."""

GIVEN_UP_MAX = 5
"""So many records in a row that were given up, while the broker answers, are the producer's fault: librdkafka keeps the
newest leader epoch that it has seen, and at a cluster that was put back it then knows no leader any more."""

CLOSE_MARGIN_SECONDS = 2.0
ERROR_TEXT_MAX = 200

_log = structlog.get_logger("onceflow.bridge")


class BrokerWatch:
    """Probes the broker in a thread of its own.

    Args:
        kafka: the operator's librdkafka properties.
        topic: the event topic.
        body_bytes_max: the largest HTTP body.
        message_timeout_ms: after this long a record is given up.
        metrics: where renewals are counted.
    """

    def __init__(
        self,
        kafka: Mapping[str, object],
        *,
        topic: str,
        body_bytes_max: int,
        message_timeout_ms: int,
        metrics: BridgeMetrics,
    ) -> None:
        self._kafka = kafka
        self._topic = topic
        self._body_bytes_max = body_bytes_max
        self._message_timeout_ms = message_timeout_ms
        self._metrics = metrics
        self._lock = threading.Lock()
        self._logged: list[str] | None = None
        self._state = BrokerState()
        self._delivered_at: float | None = None
        self._given_up = 0
        self._topic_bytes: int | None = None
        self._limit_unread = True
        self._renewed_at = 0.0
        self._generation = 0
        self._failed_generation = -1
        self._retiring: list[threading.Thread] = []
        self._stop = threading.Event()
        self._nudge = threading.Event()
        self.reasons: tuple[Reason, ...] = reasons(self._state, now=time.monotonic())
        self.closed: Reason | None = closing_reason(self.reasons)
        self.producer = self._new_producer()
        self._thread = threading.Thread(target=self._watch, name="bridge-watch", daemon=True)

    def start(self) -> None:
        """Begin to probe; until the first proof the road is closed."""
        self._thread.start()

    @property
    def limits(self) -> SizeLimits:
        """The size limits in force."""
        return SizeLimits(self._body_bytes_max, self._producer_bytes(), self._topic_bytes)

    def note_delivery(self) -> None:
        """Take a delivery as proof that the broker works for us."""
        self._delivered_at = time.monotonic()
        self._given_up = 0
        if self._state.write_refused is not None:
            self._change(lambda state: replace(state, write_refused=None))

    def note_delivery_error(self, error: KafkaError) -> None:
        """Take the error of a delivery report into the state."""
        code = error.code()
        if code == GIVEN_UP:
            self._given_up += 1
        if code in WRITE_ERRORS:
            self._change(lambda state: replace(state, write_refused=error.name()))
        elif code in CREDENTIAL_ERRORS:
            self._change(lambda state: replace(state, credentials_refused=error.name()))

    def note_client_error(self, error: KafkaError, generation: int | None = None) -> None:
        """Take an error of the client itself into the state; callable from every thread, never raises.

        Args:
            error: what the client said.
            generation: which producer said it, None for the one in use; the death of an old one is no news.
        """
        if error.fatal() or error.code() == FATAL:
            if generation is None or generation == self._generation:
                self._failed_generation = self._generation
                self._change(lambda state: replace(state, producer_failed=error.name()))
                if error.code() in WRITE_ERRORS:
                    # Without any right to write, a producer gets no id; the next one will not either.
                    self._change(lambda state: replace(state, write_refused=error.name()))
                self._nudge.set()
        else:
            if error.code() != BROKERS_DOWN:
                self._change(lambda state: replace(state, last_error=error.str()[:ERROR_TEXT_MAX]))
            self.note_delivery_error(error)

    def size_refused(self, record_bytes: int) -> bool:
        """Take the broker's word that a batch was too large; True when a record of this size is itself too large.

        The topic's limit is read again: it was lowered, or could not be read before.
        """
        known = TOPIC_BYTES_DEFAULT if self._topic_bytes is None else self._topic_bytes
        self._limit_unread = True
        self._nudge.set()
        return record_bytes > known

    def close(self, *, within_seconds: float) -> None:
        """Stop probing and end every producer; records in hand get their reports first."""
        give_up_at = time.monotonic() + within_seconds
        self._stop.set()
        self._nudge.set()
        if self._thread.is_alive():
            self._thread.join(max(0.0, give_up_at - time.monotonic()))
        remaining = max(0.0, give_up_at - time.monotonic())
        self._retiring.append(self.producer.retire(purge=False, within_seconds=remaining))
        for thread in self._retiring:
            thread.join(max(0.0, give_up_at - time.monotonic()) + CLOSE_MARGIN_SECONDS)

    def _watch(self) -> None:
        while not self._stop.is_set():
            if self._failed_generation == self._generation:
                self._renew(f"it failed: {self._state.producer_failed}", purge=True)
            self._probe()
            if self._given_up >= GIVEN_UP_MAX and self._answers():
                self._given_up = 0
                self._renew("it delivers nothing while the broker answers", purge=False)
            self._publish_state()
            self._nudge.wait(PROBE_SECONDS)
            self._nudge.clear()

    def _answers(self) -> bool:
        seen_at = self._state.seen_at
        return seen_at is not None and time.monotonic() - seen_at < STALL_AFTER_SECONDS

    def _probe(self) -> None:
        try:
            partitions = self.producer.partition_count(self._topic, timeout_seconds=PROBE_TIMEOUT_SECONDS)
        except KafkaException as failure:
            if failure.args[0].code() in NOT_ANSWERED and self._state.last_error:
                # The client has said why; that this call got no answer is no better reason.
                self._publish_state()
            else:
                self.note_client_error(failure.args[0])
            return
        seen_at = time.monotonic()
        self._change(
            lambda state: replace(
                state,
                seen_at=seen_at,
                topic_missing=partitions == 0,
                credentials_refused=None,
                last_error="",
                # Metadata comes through a failed producer too: only a new one proves that it works.
                producer_failed=state.producer_failed if self._failed_generation == self._generation else None,
            )
        )
        if self._limit_unread and partitions:
            self._read_limit()

    def _read_limit(self) -> None:
        """Read the topic's limit and bring the producer in line with it."""
        self._limit_unread = False
        before = self._producer_bytes()
        self._topic_bytes = read_topic_bytes(self._kafka, self._topic)
        limits = self.limits
        log = _log.info if limits.body_fits else _log.error
        log(
            "bridge_size_limits",
            smallest=limits.smallest,
            body_bytes=limits.body,
            producer_bytes=limits.producer,
            topic_bytes=limits.topic,
        )
        if limits.producer != before:
            self._renew("the topic's size limit changed", purge=False)

    def _producer_bytes(self) -> int:
        return producer_bytes(self._body_bytes_max, self._topic_bytes)

    def _new_producer(self) -> ProducerHandle:
        properties = producer_properties(
            self._kafka, record_bytes_max=self._producer_bytes(), message_timeout_ms=self._message_timeout_ms
        )
        self._generation += 1
        return ProducerHandle(properties, on_error=partial(self.note_client_error, generation=self._generation))

    def _renew(self, why: str, *, purge: bool) -> None:
        pause = self._renewed_at + RENEWAL_PAUSE_SECONDS - time.monotonic()
        if self._stop.wait(max(0.0, pause)):
            return
        self._renewed_at = time.monotonic()
        old, self.producer = self.producer, self._new_producer()
        within_seconds = self._message_timeout_ms / 1_000 + CLOSE_MARGIN_SECONDS
        self._retiring = [thread for thread in self._retiring if thread.is_alive()]
        self._retiring.append(old.retire(purge=purge, within_seconds=within_seconds))
        self._metrics.renewals.inc()
        _log.warning("bridge_producer_renewed", why=why)

    def _change(self, change: Callable[[BrokerState], BrokerState]) -> None:
        with self._lock:
            self._state = change(self._state)
        self._publish_state()

    def _publish_state(self) -> None:
        """Make the state visible, and log what it is at first and whenever it changes."""
        now = time.monotonic()
        with self._lock:
            state = self._state
            if self._delivered_at is not None:
                state = replace(state, seen_at=max(self._delivered_at, state.seen_at or 0.0))
            self.reasons = reasons(state, now=now)
            self.closed = closing_reason(self.reasons)
            codes = [reason.code for reason in self.reasons]
            before, self._logged = self._logged, codes
        if before != codes:
            self._log_change()

    def _log_change(self) -> None:
        if not self.reasons:
            _log.info("bridge_ready", topic=self._topic)
            return
        for reason in self.reasons:
            _log.warning(
                "bridge_not_ready",
                code=reason.code,
                detail=reason.detail,
                said=reason.said,
                waiting_for=f"Kafka at {self._kafka.get('bootstrap.servers')}",
            )
