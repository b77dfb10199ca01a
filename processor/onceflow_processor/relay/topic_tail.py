"""Looks into the outcome topic: cursors, extents, the last real record of a lane, and all records from one on.

Rule: what is read here is committed (or, only where it is asked for by name, possibly still open); control markers
and aborted records take offsets but are no records, so offsets are never taken as dense.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, cast

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from onceflow_processor.relay.cursor import (
    Cursor,
    Extent,
    OutcomeRecord,
    TailRecord,
    decode_cursor,
    read_record,
)
from onceflow_processor.relay.importing import TopicRecord
from onceflow_processor.relay.kafka_clients import Refusals, broker_failure, broker_failures, open_admin, open_reader
from onceflow_producer.kafka_errors import REFUSALS
from onceflow_schemas.failure import Misconfigured, Unavailable

STEP_FIRST: Final = 4
"""A lane usually ends with a record and the marker of its transaction, so the first step finds it."""
STEP_FACTOR: Final = 8
STEPS_MAX: Final = 24
"""More steps than any offset needs: 4 * 8**23 is beyond 2**63."""
POLL_SECONDS: Final = 0.2
CURSOR_SLICE_SECONDS: Final = 1.0
COORDINATOR_WAIT_SECONDS: Final = 0.1
"""Between two tries: some of the coordinator's answers come at once."""

_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_UNKNOWN_TOPIC: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)  # noqa: SLF001 - a public constant


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """The topic's id, in Kafka's base64 form, and its number of partitions."""

    topic_id: str
    partitions: int


class TopicTail:
    """A look at one topic; a context manager that closes its clients.

    Args:
        kafka: the operator's librdkafka properties.
        topic: the outcome topic.
        group: where the relay's cursors are kept.
        deadline_seconds: for everything that is done with it together.
        refusals: told of refused credentials.
    """

    def __init__(
        self, kafka: Mapping[str, object], *, topic: str, group: str, deadline_seconds: float, refusals: Refusals
    ) -> None:
        self._kafka, self._topic, self._group, self._refusals = kafka, topic, group, refusals
        self._where = f"reading topic {topic}"
        self._give_up_at = time.monotonic() + deadline_seconds
        self._readers: dict[str, Consumer] = {}
        self._admin: AdminClient = open_admin(kafka, refusals=refusals)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for reader in self._readers.values():
            reader.close()
        # Given up here, by its owner: left to the garbage collector, which runs in any thread, it could end inside its own
        # callback thread, and librdkafka ends the whole process then.
        del self._admin

    def facts(self) -> TopicFacts:
        """Ask what the topic is.

        Raises:
            Misconfigured: ``topic_missing``.
            Unavailable: the broker did not answer.
        """
        with broker_failures(self._where):
            asked = self._admin.describe_topics(TopicCollection([self._topic]), request_timeout=self._remaining())
            try:
                found = asked[self._topic].result(self._remaining())
            except Exception as error:
                # Refused credentials come beside the answer, and only to who asks for them.
                self._admin.poll(0)
                if _code_of(error) in _UNKNOWN_TOPIC:
                    raise Misconfigured("topic_missing", f"the topic {self._topic} does not exist") from error
                raise
        return TopicFacts(str(found.topic_id), len(found.partitions))

    def cursors(self, lanes: Sequence[int]) -> dict[int, Cursor]:
        """Return the committed cursors; waits while a commit is undecided.

        Raises:
            Unavailable: the broker did not answer, or a transaction stayed open for too long.
        """
        asked = [TopicPartition(self._topic, lane) for lane in lanes]
        with broker_failures(self._where):
            answers = self._committed(asked)
        for answer in answers:
            if answer.error is not None:
                raise broker_failure(answer.error, where=f"cursor of lane {answer.partition}")
        return {answer.partition: decode_cursor(answer.offset, answer.metadata) for answer in answers}

    def _committed(self, asked: list[TopicPartition]) -> list[TopicPartition]:
        """Ask in slices: the client's wait cannot be interrupted, not even by a signal.

        A coordinator that moves, or that a broker loads at its start, is waited for as well.
        """
        reader = self._reader("read_committed")
        while True:
            try:
                return reader.committed(asked, timeout=min(CURSOR_SLICE_SECONDS, self._remaining()))
            except KafkaException as error:
                reason = error.args[0]
                if not (reason.retriable() or reason.code() == KafkaError._TIMED_OUT):  # noqa: SLF001 - a public constant
                    raise
                _raise_refusal(reader, wait_seconds=min(COORDINATOR_WAIT_SECONDS, self._remaining()))

    def extents(self, lanes: Sequence[int]) -> dict[int, Extent]:
        """Return where the partitions begin and end."""
        partitions = [TopicPartition(self._topic, lane) for lane in lanes]
        lows = self._offsets(partitions, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)
        # The stable end is asked first: what is finished in between cannot make it lie beyond the end.
        stable = self._offsets(partitions, _LATEST, IsolationLevel.READ_COMMITTED)
        ends = self._offsets(partitions, _LATEST, IsolationLevel.READ_UNCOMMITTED)
        return {lane: Extent(lows[lane], stable[lane], ends[lane]) for lane in lanes}

    def last_record(self, lane: int, extent: Extent) -> TailRecord | None:
        """Return the last committed record that is no refill, looking back over markers and aborted records."""
        last: TailRecord | None = None
        for start in steps_back(extent.low, extent.stable_end):
            for record in self._records(lane, start, end=extent.stable_end, isolation="read_committed"):
                if not (isinstance(record, OutcomeRecord) and record.refill):
                    last = record
            if last is not None or start == extent.low:
                break
        return last

    def open_record(self, lane: int, extent: Extent) -> TailRecord | None:
        """Return the last record of transactions that are not finished, None when there is none."""
        last: TailRecord | None = None
        for record in self._records(lane, extent.stable_end, end=extent.end, isolation="read_uncommitted"):
            last = record
        return last

    def records_around(self, lane: int, seq: int, *, extent: Extent) -> Iterator[TailRecord]:
        """Yield all committed records, from one at or before sequence ``seq`` + 1 on where the log still has it."""
        start = self._start_around(lane, seq, extent=extent)
        yield from self._records(lane, start, end=extent.stable_end, isolation="read_committed")

    def whole_records_around(self, lane: int, seq: int, *, extent: Extent) -> Generator[TopicRecord]:
        """Yield the same records with all that they hold."""
        start = self._start_around(lane, seq, extent=extent)
        for message in self._messages(lane, start, end=extent.stable_end, isolation="read_committed"):
            offset = message.offset()
            assert offset is not None
            yield TopicRecord(offset, _headers(message), message.key(), message.value())

    def _start_around(self, lane: int, seq: int, *, extent: Extent) -> int:
        start = extent.low
        for start in steps_back(extent.low, extent.stable_end):
            with closing(self._records(lane, start, end=extent.stable_end, isolation="read_committed")) as records:
                first = next((one for one in records if isinstance(one, OutcomeRecord) and not one.refill), None)
            if first is not None and first.seq <= seq + 1:
                break
        return start

    def _records(self, lane: int, start: int, *, end: int, isolation: str) -> Generator[TailRecord]:
        with closing(self._messages(lane, start, end=end, isolation=isolation)) as messages:
            for message in messages:
                offset = message.offset()
                assert offset is not None
                yield read_record(offset, lane=lane, headers=_headers(message))

    def _messages(self, lane: int, start: int, *, end: int, isolation: str) -> Generator[Message]:
        """Yield the records in [start, end); ends also where the broker says that nothing more follows."""
        if start >= end:
            return
        reader = self._reader(isolation)
        with broker_failures(self._where):
            reader.assign([TopicPartition(self._topic, lane, start)])
            try:
                while True:
                    message = reader.poll(min(POLL_SECONDS, self._remaining()))
                    if message is None:
                        continue
                    offset = message.offset()
                    if _is_end(message) or offset is None or offset >= end:
                        return
                    yield message
            finally:
                reader.unassign()

    def _offsets(self, partitions: list[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel) -> dict[int, int]:
        with broker_failures(self._where):
            answers = self._admin.list_offsets(
                dict.fromkeys(partitions, spec), isolation_level=isolation, request_timeout=self._remaining()
            )
            return {part.partition: answer.result(self._remaining()).offset for part, answer in answers.items()}

    def _reader(self, isolation: str) -> Consumer:
        if isolation not in self._readers:
            self._readers[isolation] = open_reader(
                self._kafka, group=self._group, isolation=isolation, refusals=self._refusals
            )
        return self._readers[isolation]

    def _remaining(self) -> float:
        remaining = self._give_up_at - time.monotonic()
        if remaining <= 0:
            raise Unavailable("broker_unavailable", "Kafka did not answer in time")
        return remaining


def _raise_refusal(reader: Consumer, *, wait_seconds: float) -> None:
    """Raise when the broker has refused: without a right to the group the client looks for its coordinator for ever."""
    message = reader.poll(wait_seconds)
    error = message.error() if message is not None else None
    if error is not None and error.code() in REFUSALS:
        raise broker_failure(error, where="the relay's cursors")


def steps_back(low: int, end: int) -> Iterator[int]:
    """Yield offsets further and further before ``end``; the last one is ``low``."""
    step = STEP_FIRST
    for _ in range(STEPS_MAX):
        start = max(low, end - step)
        yield start
        if start == low:
            return
        step *= STEP_FACTOR


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    """Return a received record's headers, which are always a list of bytes (the client's type is for sending too)."""
    return cast("list[tuple[str, bytes | None]]", message.headers() or [])


def _is_end(message: Message) -> bool:
    """True at the end of the partition.

    Raises:
        Unavailable, Misconfigured: the message is another error.
    """
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - a public constant
        return True
    raise broker_failure(error, where="reading the outcome topic")


def _code_of(error: BaseException) -> int | None:
    reason = error.args[0] if error.args else None
    return reason.code() if isinstance(reason, KafkaError) else None
