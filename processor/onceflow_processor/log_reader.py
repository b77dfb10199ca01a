"""Reads a stretch of an event topic by hand, outside of the group: for decisions about positions.

Rule: it commits nothing and joins no group, so a look disturbs no processor; every wait and every count has a limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from types import TracebackType
from typing import Final, Self, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from onceflow_processor.kafka_client import kafka_failure
from onceflow_processor.position import LogBounds
from onceflow_processor.records import Headers, Partition, Record
from onceflow_processor.relay.kafka_clients import Refusals, open_reader
from onceflow_processor.relay.topic_tail import steps_back
from onceflow_schemas.failure import Failure, Misconfigured, Refused, Unavailable
from onceflow_schemas.fingerprint import record_fingerprint

ASK_SECONDS_MAX: Final = 5.0
POLL_SECONDS: Final = 0.2
_NO_PARTITION: Final = (KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART)  # noqa: SLF001 - as below
_EOF: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - the library's names of its local errors begin so.


class LogReader:
    """A look at one cluster; a context manager that closes its client.

    Args:
        kafka: the operator's librdkafka properties.
        group: a name that the client wants to have; it is not joined, but the broker may ask for the right to it.
        deadline_seconds: for everything that is done with it together.
        tick: called again and again while it reads and waits; what it raises ends the reading.
    """

    def __init__(
        self,
        kafka: Mapping[str, object],
        *,
        group: str,
        deadline_seconds: float,
        tick: Callable[[], object] = lambda: None,
    ) -> None:
        self._tick = tick
        self._refusals = Refusals()
        self._consumer: Consumer = open_reader(kafka, group=group, isolation="read_committed", refusals=self._refusals)
        self._give_up_at = time.monotonic() + deadline_seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def renew(self, seconds: float) -> None:
        """Set a new deadline: who reads for hours sets one for each page."""
        self._give_up_at = time.monotonic() + seconds

    def bounds(self, partition: Partition) -> LogBounds:
        """Return what the log of a partition holds.

        Raises:
            Refused: ``position_refused``: there is no such partition.
            Failure: the broker did not answer, or refused.
        """
        self._tick()
        place = TopicPartition(partition.topic, partition.number)
        try:
            watermarks = self._consumer.get_watermark_offsets(place, timeout=self._remaining(), cached=False)
        except KafkaException as error:
            if error.args[0].code() in _NO_PARTITION:
                message = f"{partition.topic} has no partition {partition.number}"
                raise Refused(
                    "position_refused", message, "`onceflow progress show` lists those that there are."
                ) from None
            raise self._failure(error, topic=partition.topic, right="DESCRIBE") from error
        if watermarks is None:
            raise self._failure(TimeoutError("the offsets of a partition"))
        return LogBounds(*watermarks)

    def offset_at(self, partition: Partition, *, moment: datetime, bounds: LogBounds) -> int:
        """Return the offset of the first record at or after a moment; the log's end when there is none."""
        asked = TopicPartition(partition.topic, partition.number, int(moment.timestamp() * 1000))
        try:
            [found] = self._consumer.offsets_for_times([asked], timeout=self._remaining())
        except KafkaException as error:
            raise self._failure(error, topic=partition.topic, right="DESCRIBE") from error
        return found.offset if found.offset >= 0 else bounds.high

    def fingerprint_before(self, partition: Partition, offset: int, *, bounds: LogBounds) -> str | None:
        """Return the fingerprint of the last record before an offset; None when the log holds none.

        Offsets are not dense: control markers and compacted records leave holes, so it steps back.
        """
        last: Record | None = None
        for start in steps_back(bounds.low, offset):
            with closing(self.records(partition, start, end=offset)) as records:
                for record in records:
                    last = record
            if last is not None:
                break
        if last is None:
            return None
        return record_fingerprint(offset=last.offset, timestamp_ms=last.timestamp_ms, key=last.key, value=last.value)

    def records(self, partition: Partition, first: int, *, end: int) -> Generator[Record]:
        """Yield the records with offsets from ``first`` to before ``end``; ends also at the end of the log.

        Raises:
            Failure: the broker did not answer, or the deadline is over.
        """
        if first >= end:
            return
        self._consumer.assign([TopicPartition(partition.topic, partition.number, first)])
        try:
            while True:
                self._tick()
                message = self._consumer.poll(min(POLL_SECONDS, self._remaining()))
                if message is None:
                    continue
                error, offset = message.error(), message.offset()
                if error is not None and error.code() != _EOF:
                    raise self._failure(KafkaException(error), topic=partition.topic, right="READ")
                if error is not None or offset is None or offset >= end:
                    return
                yield _record(partition, offset, message)
        finally:
            self._consumer.unassign()

    def _remaining(self) -> float:
        remaining = min(ASK_SECONDS_MAX, self._give_up_at - time.monotonic())
        if remaining <= 0:
            raise Unavailable("broker_unavailable", "Kafka did not answer in time")
        return remaining

    def _failure(self, error: BaseException, *, topic: str = "", right: str = "") -> Failure:
        if self._refusals.last is not None:
            return Misconfigured("broker_refused", f"Kafka refused our credentials: {self._refusals.last}")
        return kafka_failure(error, topic=topic, right=right)


def _record(partition: Partition, offset: int, message: Message) -> Record:
    headers = cast("Headers", message.headers() or [])
    return Record(partition, offset, message.timestamp()[1], message.key(), message.value(), headers, 0)


def pages(records: Iterator[Record], *, size: int) -> Iterator[Sequence[Record]]:
    """Yield the records in lists of at most ``size``."""
    page: list[Record] = []
    for record in records:
        page.append(record)
        if len(page) == size:
            yield page
            page = []
    if page:
        yield page
