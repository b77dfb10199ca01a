"""One Kafka transaction: records of one or several lanes, and the cursors that say so.

Rule: records and cursors become visible together or not at all.  The cursor is committed with the real next offset,
so the records' reports are waited for first.  After any failure or doubt (a refused record, a timeout, a fence, an
error in commit or abort) the producer is not used again; the next one's ``init_transactions`` ends what is open.
librdkafka has no KIP-890, so a late end of one transaction could hit the next one; and after an abort for a refused
record it was seen to fail the next transaction too, for the sequence numbers that the refused record had taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast
from uuid import UUID

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from onceflow_processor.relay.bounded_call import call_within
from onceflow_processor.relay.cursor import Mark, encode_metadata
from onceflow_processor.relay.encoding import Prepared
from onceflow_processor.relay.kafka_clients import TRANSACTION_TIMEOUT_MS, broker_failure, broker_failures
from onceflow_producer.failpoint import hit
from onceflow_schemas.failure import Failure, Misconfigured, Unavailable, Uncertain

INIT_SLICE_SECONDS: Final = 2.0
"""The lease is kept between slices, so that a slow start of the broker does not cost it."""
INIT_SLICES_MAX: Final = 15
SEND_SECONDS_MAX: Final = 9.0
COMMIT_SECONDS_MAX: Final = 8.0
ABORT_SECONDS_MAX: Final = 5.0
FLUSH_SLICE_SECONDS: Final = 0.5
QUEUE_WAIT_SECONDS: Final = 0.05
CALL_GRACE_SECONDS: Final = 0.5
assert (SEND_SECONDS_MAX + COMMIT_SECONDS_MAX + CALL_GRACE_SECONDS) * 1000 < TRANSACTION_TIMEOUT_MS, (
    "the broker must not end it first"
)

ROW_FAULTS: Final = frozenset(
    {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_RECORD}
)
"""Answers about a record; every other error is about the broker, however often it comes."""


_NOTHING: Final[Mapping[int, Mark]] = {}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A lane's record that Kafka does not take.  ``seq`` is None when it is somewhere among the lane's records."""

    seq: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Published:
    """The transaction was committed.  ``refused`` lanes were published up to the record before the refused one."""

    cursors: Mapping[int, Mark]
    refused: Mapping[int, Refusal]


@dataclass(frozen=True, slots=True)
class Failed:
    """Kafka did not take records of these lanes; nothing was published, and the producer must be replaced."""

    refused: Mapping[int, Refusal]


@dataclass(slots=True)
class _Reports:
    """What the delivery reports of one transaction said."""

    starts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    faults: dict[int, KafkaError] = field(default_factory=dict)
    broker_error: KafkaError | None = None

    @property
    def failed(self) -> bool:
        """True from the first failure on: the client sends nothing more of this transaction, so waiting is vain."""
        return bool(self.faults) or self.broker_error is not None

    def take(self, error: KafkaError | None, message: Message) -> None:
        """Note one report; within a partition they come in the order of their offsets."""
        partition = message.partition()
        assert partition is not None
        if error is None:
            offset = message.offset()
            assert offset is not None
            self.starts.setdefault(partition, offset)
            self.ends[partition] = offset + 1
        elif error.code() in ROW_FAULTS:
            self.faults.setdefault(partition, error)
        else:
            self.broker_error = self.broker_error or error


class Publisher:
    """The transactional producer of one term.

    Args:
        producer: a new one; thrown away with this object.
        topic: the outcome topic.
        group_metadata: of the relay's group, from a consumer.
        keep_lease: called while something is waited for; raises when the lease is lost.
        lease_seconds: how long the lease may still be trusted.
    """

    def __init__(
        self,
        producer: Producer,
        *,
        topic: str,
        group_metadata: Any,
        keep_lease: Callable[[], None],
        lease_seconds: Callable[[], float],
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._group_metadata = group_metadata
        self._keep_lease = keep_lease
        self._lease_seconds = lease_seconds
        self._floors: dict[int, int] = {}

    def start(self) -> None:
        """Fence every former relay and abort the transaction that one may have left open.

        Raises:
            Unavailable: the broker did not answer in time.
            LeaseLost: the lease was lost meanwhile.
        """
        for attempt in range(1, INIT_SLICES_MAX + 1):
            self._keep_lease()
            try:
                with broker_failures():
                    self._producer.init_transactions(self._bounded(INIT_SLICE_SECONDS))
            except Unavailable as failure:
                cause = failure.__cause__
                again = isinstance(cause, KafkaException) and cause.args[0].retriable()
                if not again or attempt == INIT_SLICES_MAX:
                    raise
            else:
                return

    def publish(
        self,
        batches: Mapping[int, Sequence[Prepared]],
        *,
        recommit: Mapping[int, Mark] = _NOTHING,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Published | Failed:
        """Publish records of lanes, each lane's in order, in one transaction.

        Args:
            batches: lane -> its next records, at least one each.
            recommit: cursors that are written again as they are, also where records go out: those of a refill.
            meanwhile: called once while the records are on their way.

        Raises:
            Unavailable: nothing was published; the producer must be thrown away.
            Uncertain: the answer to the commit was lost; the cursor decides after a new ``init_transactions``.
            LeaseLost, Misconfigured: nothing was published; the producer must be thrown away.
        """
        with broker_failures():
            self._producer.begin_transaction()
        hit("relay.after_begin")
        reports = _Reports()
        sent, refused = self._send(batches, reports=reports, meanwhile=meanwhile)
        if reports.failed:
            self._drain()
            if not reports.faults:
                raise broker_failure(reports.broker_error, where="a delivery report")
            return Failed({lane: Refusal(None, error.name()) for lane, error in reports.faults.items()})
        self._floors |= {lane: mark.next_offset for lane, mark in recommit.items()}
        self._check_log(reports.starts)
        cursors = {lane: Mark(reports.ends[lane], last.seq, UUID(last.ce_id.decode())) for lane, last in sent.items()}
        everything = {**cursors, **recommit}
        if everything:
            self._commit(everything)
        else:
            self._abort()
        self._floors |= {lane: mark.next_offset for lane, mark in cursors.items()}
        return Published(cursors, refused)

    def close(self) -> None:
        """Throw the producer away without waiting for what it still holds."""
        with suppress(Failure), broker_failures():
            self._producer.purge()
            self._producer.flush(0)

    def _send(
        self, batches: Mapping[int, Sequence[Prepared]], *, reports: _Reports, meanwhile: Callable[[], None]
    ) -> tuple[dict[int, Prepared], dict[int, Refusal]]:
        """Hand all records over and wait for their reports; a record that the client refuses ends its lane's batch."""
        give_up_at = time.monotonic() + SEND_SECONDS_MAX
        sent: dict[int, Prepared] = {}
        refused: dict[int, Refusal] = {}
        for lane, records in batches.items():
            for record in records:
                error = self._hand_over(lane, record, reports=reports, give_up_at=give_up_at)
                if error is None:
                    sent[lane] = record
                elif error.code() in ROW_FAULTS:
                    refused[lane] = Refusal(record.seq, error.name())
                    break
                else:
                    # The transaction has failed already, perhaps for a record whose report is still to come.
                    reports.broker_error = error
                    return sent, refused
        hit("relay.after_produce")
        meanwhile()
        while not reports.failed and self._flush():
            self._wait_on(give_up_at)
        return sent, refused

    def _check_log(self, starts: Mapping[int, int]) -> None:
        """Refuse to commit into a log that is not the one that was looked at.

        A producer writes by name, and a topic that was made again, or lost its tail, gives out offsets anew.
        """
        for lane, offset in starts.items():
            floor = self._floors.get(lane, 0)
            if offset < floor:
                message = f"lane {lane} got offset {offset}, though its log had reached {floor}: the log was replaced"
                raise Unavailable("broker_unavailable", message)

    def _drain(self) -> None:
        """Take all reports of a failed transaction.

        One failed record takes the others with it, and theirs may be reported before its own; what was not sent yet
        is reported only when it is thrown away.
        """
        give_up_at = time.monotonic() + ABORT_SECONDS_MAX
        self._flush()
        with broker_failures():
            self._producer.purge()
        while self._flush():
            self._wait_on(give_up_at)

    def _hand_over(self, lane: int, record: Prepared, *, reports: _Reports, give_up_at: float) -> KafkaError | None:
        while True:
            try:
                self._producer.produce(
                    self._topic, record.value, record.key, lane, on_delivery=reports.take, headers=record.headers
                )
            except BufferError:
                with broker_failures():
                    self._producer.poll(QUEUE_WAIT_SECONDS)
                self._wait_on(give_up_at)
            except KafkaException as error:
                return cast("KafkaError", error.args[0])
            else:
                return None

    def _flush(self) -> int:
        with broker_failures():
            return self._producer.flush(FLUSH_SLICE_SECONDS)

    def _wait_on(self, give_up_at: float) -> None:
        self._keep_lease()
        if time.monotonic() > give_up_at:
            raise Unavailable("broker_unavailable", "Kafka did not confirm the records in time")

    def _commit(self, cursors: Mapping[int, Mark]) -> None:
        hit("relay.before_offsets")
        self._keep_lease()
        offsets = [
            TopicPartition(self._topic, lane, mark.next_offset, metadata=encode_metadata(mark))
            for lane, mark in cursors.items()
        ]
        give_up_at = time.monotonic() + self._bounded(COMMIT_SECONDS_MAX)
        seconds = self._bounded(COMMIT_SECONDS_MAX)
        with broker_failures():
            call = partial(self._producer.send_offsets_to_transaction, offsets, self._group_metadata, seconds)
            call_within(call, seconds=seconds + CALL_GRACE_SECONDS)
        hit("relay.before_commit")
        try:
            with broker_failures():
                self._producer.commit_transaction(max(give_up_at - time.monotonic(), 0.001))
        except (Unavailable, Misconfigured) as failure:
            raise Uncertain("commit_uncertain", f"the commit was not confirmed: {failure.message}") from failure

    def _abort(self) -> None:
        with broker_failures():
            self._producer.abort_transaction(self._bounded(ABORT_SECONDS_MAX))

    def _bounded(self, seconds: float) -> float:
        """Return a wait that ends before the lease may no longer be trusted."""
        return max(min(seconds, self._lease_seconds()), 0.001)
