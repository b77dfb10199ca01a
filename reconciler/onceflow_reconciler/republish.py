"""Brings events that were missed to the event topic, as the bridge would have.

Rule: the record says who brings it and is attested like any other, with an endpoint that no webhook can have; an event counts as
brought only with the broker's report.  One that can never be brought is told, and keeps no other waiting.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
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
from onceflow_schemas.event_record import RECONCILER_ENDPOINT, OutgoingRecord, build_event
from onceflow_schemas.failure import Misconfigured, Unavailable

PORTION_EVENTS: Final = 100
REPORT_SECONDS_MAX: Final = 30.0
MESSAGE_TIMEOUT_MS: Final = 20_000
POLL_SECONDS: Final = 0.05
RETIRE_SECONDS: Final = 2.0
_NEVER_TAKEN: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD})
"""What a broker, or our client, says of a record that it would not take at any other time either."""


class _Reports:
    """What became of the records of one call; ``refused`` takes what can never be brought."""

    def __init__(self, refused: dict[str, str]) -> None:
        self.waiting: set[str] = set()
        self._failed: list[str] = []
        self._refused = refused

    def note(self, event_id: str, error: KafkaError | None) -> None:
        """A record was delivered, or was not."""
        self.waiting.discard(event_id)
        if error is None:
            return
        if error.code() in _NEVER_TAKEN:
            self._refused[event_id] = f"the topic does not take its record: {error.str()}"
        else:
            self._failed.append(error.str())

    def check(self) -> None:
        """Raise ``Unavailable`` unless it is known of each record that it is there, or never will be."""
        if self.waiting or self._failed:
            reason = self._failed[0] if self._failed else "no report in time"
            message = f"{len(self.waiting) + len(self._failed)} events were not confirmed: {reason}"
            raise Unavailable("broker_unavailable", message)


class Republisher:
    """Publishes to one topic.

    Args:
        kafka: the operator's librdkafka properties.
        topic: the event topic.
        keys: attestation keys.
        deployment: that the attestation is for.
        mode: of this deployment.
        record_bytes_max: what the topic takes.

    Attributes:
        topic: as it was given.
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
        self.topic = topic
        self._keys = keys
        self._deployment = deployment
        self._mode = mode
        self._ends: dict[int, int] = {}

    @property
    def ends(self) -> dict[int, int]:
        """Behind which offset the last confirmed record of each partition lies."""
        self._producer.poll()
        return dict(self._ends)

    def publish(self, account: str, events: Sequence[Listed]) -> dict[str, str]:
        """Publish events and wait until the broker has them, again harms nothing; return why some can never be brought, by id.

        Raises:
            Unavailable: the broker does not have all others, as far as we know.
            Misconfigured: ``attestation_key_missing``.
        """
        refused: dict[str, str] = {}
        for _ in self.portions(account, events, refused=refused):
            pass
        return refused

    def portions(self, account: str, events: Sequence[Listed], *, refused: dict[str, str]) -> Iterator[None]:
        """As ``publish``, but yield between two portions, so that who calls may leave room for others.

        Args:
            account: whose list shows the events.
            events: of the list.
            refused: why an event can never be brought is added here, by its id.

        Raises:
            Unavailable, Misconfigured: as ``publish``.
        """
        now = datetime.now(UTC)
        key = signing_key(self._keys, now)
        if key is None:
            raise Misconfigured("attestation_key_missing", "no attestation key may sign at this time")
        reports = _Reports(refused)
        for begin in range(0, len(events), PORTION_EVENTS):
            if begin:
                yield
            give_up_at = time.monotonic() + REPORT_SECONDS_MAX
            for event in events[begin : begin + PORTION_EVENTS]:
                record = self._record(account, event, received_at=now, key=key)
                if record.identity == (account, self._mode, event.id):
                    self._produce(record, reports, give_up_at=give_up_at)
                else:
                    # Its marker would have another identity, so that the list would show it as missed for ever.
                    refused[event.id] = "its id or its account is none that an event of this account has"
        give_up_at = time.monotonic() + REPORT_SECONDS_MAX
        while reports.waiting and time.monotonic() < give_up_at:
            self._producer.poll(POLL_SECONDS)
        reports.check()
        hit("reconciler.after_publish")

    def close(self) -> None:
        """Let go of the producer."""
        self._producer.retire(purge=True, within_seconds=RETIRE_SECONDS).join(2 * RETIRE_SECONDS)

    def _record(self, account: str, event: Listed, *, received_at: datetime, key: AttestationKey) -> OutgoingRecord:
        body = written_again(event.body)
        return build_event(
            body,
            envelope=read_envelope(body),
            default_account=account,
            default_mode=self._mode,
            received_at=received_at,
            endpoint=RECONCILER_ENDPOINT,
            source="reconciler",
            deployment=self._deployment,
            topic=self.topic,
            key=key,
            traceparent=None,
        )

    def _produce(self, record: OutgoingRecord, reports: _Reports, *, give_up_at: float) -> None:
        event_id = record.identity.event_id
        reports.waiting.add(event_id)

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            reports.note(event_id, error)
            partition, offset = message.partition(), message.offset()
            if error is None and partition is not None and offset is not None:
                self._ends[partition] = max(offset + 1, self._ends.get(partition, 0))

        while True:
            try:
                self._producer.produce(
                    self.topic, key=record.key, value=record.value, headers=record.headers, on_delivery=on_delivery
                )
            except BufferError:
                if time.monotonic() > give_up_at:
                    raise Unavailable("broker_unavailable", "the producer's queue stays full") from None
                self._producer.poll(POLL_SECONDS)
            except KafkaException as error:
                said: KafkaError = error.args[0]
                if said.code() in _NEVER_TAKEN:
                    reports.note(event_id, said)
                    return
                message = f"the producer did not take a record: {said.str()}"
                raise Unavailable("broker_unavailable", message) from error
            else:
                return

    def _note_error(self, error: KafkaError) -> None:
        self._error = error
