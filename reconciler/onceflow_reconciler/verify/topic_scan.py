"""Reads a topic from given offsets to its stable end, all partitions at once, as a consumer of committed records sees it.

Rule: what is read goes on at once and is not kept; a partition is done where the broker says that it ends, never by counting.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from onceflow_processor.kafka_client import kafka_failure
from onceflow_processor.relay.kafka_clients import Refusals, open_reader
from onceflow_schemas.failure import Misconfigured, Unavailable

PAGE_RECORDS: Final = 100
"""So few that a page of events stays in the cache of a core while it is looked at; with 2,000 a record costs nearly twice as much."""
QUEUE_KILOBYTES_MAX: Final = 8_192
"""So much is fetched ahead: some answers of a broker, which do not wait for us."""
PAGE_SECONDS: Final = 0.05
"""A page that is not full is waited for so long, also at the end of a log."""
ASK_SECONDS_MAX: Final = 10.0
SILENCE_SECONDS_MAX: Final = 60.0
"""No record and no end for so long: the broker is away."""
CLOCKS_MARGIN: Final = timedelta(hours=1)
"""So far the clocks of a record, of its row and of the broker may be apart."""
EVER: Final = datetime(1970, 1, 1, tzinfo=UTC)
TAIL_OFFSETS: Final = 64
"""So many offsets before the end are looked at for the last record of a log, and then ever more."""
_EOF: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - the library's names of its local errors begin so.
_AWAY: Final = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)  # noqa: SLF001 - as above


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a partition's log holds: from ``low`` on, before ``high``; open transactions lie behind it."""

    low: int
    high: int


def begin_at(
    bounds: Mapping[int, Bounds], *, hints: Mapping[int, int] | None, known: Mapping[int, int]
) -> dict[int, int]:
    """Return where reading begins: where the time says, or earlier where the ledger knows better; None: at the log's start."""
    if hints is None:
        return {number: one.low for number, one in bounds.items()}
    return {
        number: max(one.low, min(hints[number], known.get(number, hints[number]), one.high))
        for number, one in bounds.items()
    }


def kept_since(keeps_ms: int | None, now: datetime) -> datetime | None:
    """Return the time since which no record can have left the start of a log by its age; None where its age does not decide."""
    if keeps_ms is None:
        return None
    return EVER if keeps_ms < 0 else now - timedelta(milliseconds=keeps_ms) + CLOCKS_MARGIN


def noted(topic_id: str, first: Mapping[int, int], bounds: Mapping[int, Bounds]) -> dict[str, Any]:
    """Return what a proof says of a topic."""
    places = {str(number): {"first": first[number], "end": one.high} for number, one in bounds.items()}
    return {"id": topic_id, "partitions": places}


class TopicScan:
    """A look at one topic; a context manager that closes its client.

    Args:
        kafka: the operator's librdkafka properties.
        topic: its name.
        group: a name that the client wants to have; it is not joined.
    """

    def __init__(self, kafka: Mapping[str, object], *, topic: str, group: str) -> None:
        self._topic = topic
        self._refusals = Refusals()
        self._reader: Consumer = open_reader(
            kafka,
            group=group,
            isolation="read_committed",
            refusals=self._refusals,
            queue_kilobytes=QUEUE_KILOBYTES_MAX,
        )

    def close(self) -> None:
        """Let go of the client."""
        self._reader.close()

    def bounds(self, partitions: int) -> dict[int, Bounds]:
        """Return what the log of each partition holds.

        Raises:
            Failure: the broker did not answer, or refused.
        """
        found: dict[int, Bounds] = {}
        for number in range(partitions):
            place = TopicPartition(self._topic, number)
            try:
                watermarks = self._reader.get_watermark_offsets(place, timeout=ASK_SECONDS_MAX, cached=False)
            except KafkaException as error:
                raise self._failure(error, "DESCRIBE") from error
            if watermarks is None:
                raise Unavailable("broker_unavailable", f"Kafka did not say where {place.topic}/{number} ends")
            found[number] = Bounds(*watermarks)
        return found

    def offsets_at(self, moment: datetime, bounds: Mapping[int, Bounds]) -> dict[int, int]:
        """Return the first offset of each partition at or after a moment; the end where there is none."""
        asked = [TopicPartition(self._topic, number, int(moment.timestamp() * 1000)) for number in bounds]
        try:
            found = self._reader.offsets_for_times(asked, timeout=ASK_SECONDS_MAX)
        except KafkaException as error:
            raise self._failure(error, "DESCRIBE") from error
        return {one.partition: one.offset if one.offset >= 0 else bounds[one.partition].high for one in found}

    def messages(self, first: Mapping[int, int], bounds: Mapping[int, Bounds]) -> Iterator[list[Message]]:
        """Yield the committed records from ``first`` on and before the ends, page by page.

        Raises:
            Failure: the broker did not answer, or refused.
        """
        waiting = {number for number, one in bounds.items() if first[number] < one.high}
        if not waiting:
            return
        self._reader.assign([TopicPartition(self._topic, number, first[number]) for number in sorted(waiting)])
        heard_at = time.monotonic()
        ends = {number: one.high for number, one in bounds.items()}
        while waiting:
            heard = self._reader.consume(PAGE_RECORDS, timeout=PAGE_SECONDS)
            if heard:
                heard_at = time.monotonic()
            # Nearly every page has nothing but records that are asked for; where one has not, each is looked at.
            page = _before(ends, heard)
            if len(page) < len(heard):
                page = [message for message in heard if self._take(message, ends, waiting)]
            if page:
                yield page
            if time.monotonic() - heard_at > SILENCE_SECONDS_MAX:
                raise self._failure(TimeoutError(f"reading {self._topic}"), "READ")
        self._reader.unassign()

    def _take(self, message: Message, ends: dict[int, int], waiting: set[int]) -> bool:
        """Tell whether a message is a record that is asked for; one that is not may say that its partition is done."""
        number, offset, error = message.partition(), message.offset(), message.error()
        if error is not None and error.code() in _AWAY:
            return False
        if error is not None and error.code() != _EOF:
            raise self._failure(KafkaException(error), "READ")
        if number is None or offset is None:
            return False
        if error is not None or offset >= ends[number]:
            waiting.discard(number)
            # What comes of it later is not asked for.
            ends[number] = 0
            return False
        return True

    def _failure(self, error: BaseException, right: str) -> Exception:
        if self._refusals.last is not None:
            return Misconfigured("broker_refused", f"Kafka refused our credentials: {self._refusals.last}")
        return kafka_failure(error, topic=self._topic, right=right)


def _before(ends: Mapping[int, int], heard: Iterable[Any]) -> list[Message]:
    """Return the records before the ends; the rest is something else, or of a partition that is done."""
    return [one for one in heard if one.error() is None and one.offset() < ends[one.partition()]]


def opened(kafka: Mapping[str, object], *, topic: str, group: str) -> closing[TopicScan]:
    """Open a scan that is closed at the end of its block."""
    return closing(TopicScan(kafka, topic=topic, group=group))
