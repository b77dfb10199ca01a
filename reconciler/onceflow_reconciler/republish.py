"""Brings events that were missed to the event topic, as the bridge would have.

Rule: the record says who brings it and is attested like any other, with an endpoint that no webhook can have; an event counts as
brought only with the broker's report.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message

from onceflow_processor.inputs.unwrapped import written_again
from onceflow_producer.failpoint import hit
from onceflow_producer.kafka_properties import producer_properties
from onceflow_producer.producer_handle import ProducerHandle
from onceflow_producer.signing_key import signing_key
from onceflow_reconciler.list_page import Listed
from onceflow_schemas.attestation import AttestationKey
from onceflow_schemas.envelope import read_envelope
from onceflow_schemas.event_record import RECONCILER_ENDPOINT, build_event
from onceflow_schemas.failure import Misconfigured, Unavailable

REPORT_SECONDS_MAX: Final = 30.0
MESSAGE_TIMEOUT_MS: Final = 20_000
POLL_SECONDS: Final = 0.05
RETIRE_SECONDS: Final = 2.0


class Republisher:
    """Publishes to one topic.

    Args:
        kafka: the operator's librdkafka properties.
        topic: the event topic.
        keys: attestation keys.
        deployment: that the attestation is for.
        mode: of this deployment.
        record_bytes_max: what the topic takes.
    """

    def __init__(
        self,
        kafka: Mapping[str, object],
        *,
        topic: str,
        keys: Sequence[AttestationKey],
        deployment: str,
        mode: str,
        record_bytes_max: int,
    ) -> None:
        properties: dict[str, Any] = producer_properties(
            kafka, record_bytes_max=record_bytes_max, message_timeout_ms=MESSAGE_TIMEOUT_MS
        )
        self._error: KafkaError | None = None
        self._producer = ProducerHandle(properties, on_error=self._note_error)
        self._topic = topic
        self._keys = keys
        self._deployment = deployment
        self._mode = mode

    def publish(self, account: str, events: Sequence[Listed]) -> None:
        """Publish events and wait until the broker has all of them; again harms nothing.

        Raises:
            Unavailable: the broker does not have all of them, as far as we know.
            Misconfigured: ``attestation_key_missing``.
        """
        now = datetime.now(UTC)
        key = signing_key(self._keys, now)
        if key is None:
            raise Misconfigured("attestation_key_missing", "no attestation key may sign at this time")
        failed: list[str] = []
        confirmed = 0

        def report(error: KafkaError | None, _message: Message) -> None:
            nonlocal confirmed
            if error is None:
                confirmed += 1
            else:
                failed.append(error.str())

        give_up_at = time.monotonic() + REPORT_SECONDS_MAX
        for event in events:
            self._produce(account, event, received_at=now, key=key, report=report, give_up_at=give_up_at)
        while confirmed + len(failed) < len(events) and time.monotonic() < give_up_at:
            self._producer.poll(POLL_SECONDS)
        if confirmed < len(events):
            reason = failed[0] if failed else "no report in time"
            raise Unavailable("broker_unavailable", f"{len(events) - confirmed} events were not confirmed: {reason}")
        hit("reconciler.after_publish")

    def close(self) -> None:
        """Let go of the producer."""
        self._producer.retire(purge=True, within_seconds=RETIRE_SECONDS).join(2 * RETIRE_SECONDS)

    def _produce(
        self,
        account: str,
        event: Listed,
        *,
        received_at: datetime,
        key: AttestationKey,
        report: Any,
        give_up_at: float,
    ) -> None:
        body = written_again(event.body)
        record = build_event(
            body,
            envelope=read_envelope(body),
            default_account=account,
            default_mode=self._mode,
            received_at=received_at,
            endpoint=RECONCILER_ENDPOINT,
            source="reconciler",
            deployment=self._deployment,
            topic=self._topic,
            key=key,
            traceparent=None,
        )
        while True:
            try:
                self._producer.produce(
                    self._topic, key=record.key, value=record.value, headers=record.headers, on_delivery=report
                )
            except BufferError:
                if time.monotonic() > give_up_at:
                    raise Unavailable("broker_unavailable", "the producer's queue stays full") from None
                self._producer.poll(POLL_SECONDS)
            except KafkaException as error:
                raise Unavailable(
                    "broker_unavailable", f"the producer did not take a record: {error.args[0].str()}"
                ) from error
            else:
                return

    def _note_error(self, error: KafkaError) -> None:
        self._error = error
