"""Kafka's messages as lines of COPY, or as records for a closer look.

Rule: only what the processor has passed is written as it stands; whether somebody vouches for what waits is asked each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from confluent_kafka import Message

from onceflow_processor.records import Headers, Partition, Record
from onceflow_reconciler.verify.event_lines import event_line, outcome_line
from onceflow_reconciler.verify.seen_rows import TIME_MS_MAX, OutcomeRowSeen, outcome_row


def plain_lines(page: Sequence[Message], topic_id: str, passed: Mapping[int, int]) -> tuple[list[bytes], list[Message]]:
    """Return the lines of a page's plain records, and the messages that need a closer look."""
    places = {number: f"{topic_id}\t{number}".encode() for number in passed}
    lines: list[bytes] = []
    rest: list[Message] = []
    for message in page:
        number, offset, headers, value = message.partition(), message.offset(), message.headers(), message.value()
        line = None
        if number is not None and offset is not None and headers and value and offset < passed[number]:
            time_ms = min(max(0, message.timestamp()[1]), TIME_MS_MAX)
            line = event_line(places[number], offset, time_ms, headers=cast("Headers", headers), value=value)
        if line is None:
            rest.append(message)
        else:
            lines.append(line)
    return lines, rest


def plain_outcomes(
    page: Sequence[Message], source: str
) -> Iterator[tuple[int, int | None, bytes | None, OutcomeRowSeen | None]]:
    """Yield lane and sequence of each outcome of a page, with its line, or with a row where it needed a closer look."""
    said_source = source.encode()
    for message in page:
        lane, offset, headers = message.partition(), message.offset(), message.headers()
        key, value = message.key(), message.value()
        found = None
        if lane is not None and offset is not None and headers and key and value is not None:
            found = outcome_line(
                b"%d" % lane,
                offset,
                key=key,
                value=value,
                headers=cast("Headers", headers),
                source=said_source,
            )
        if found is None or lane is None:
            row = outcome_row_of(message, source)
            yield row.lane, row.seq, None, row
        else:
            yield lane, found[0], found[1], None


def outcome_row_of(message: Message, source: str) -> OutcomeRowSeen:
    """Look closely at a record of the outcome topic."""
    record = record_of("", message)
    return outcome_row(
        record.partition.number,
        record.offset,
        key=record.key,
        value=record.value,
        headers=record.headers,
        source=source,
    )


def record_of(topic: str, message: Message) -> Record:
    """Return a message as a record."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None, "the scan leaves out what has no place"
    assert offset is not None, "the scan leaves out what has no place"
    headers: Headers = message.headers() or []  # type: ignore[assignment]  # the stub allows what only a sender gives
    return Record(
        Partition(topic, partition), offset, message.timestamp()[1], message.key(), message.value(), headers, 0
    )
