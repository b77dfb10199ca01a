"""Reads a page of records and finds out what would become of each: the part that looking and doing have in common.

Rule: markers are looked up by identity, a page at a time, before any body is parsed; a look changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from psycopg import Connection

from onceflow_processor.admission import Item, stranger
from onceflow_processor.arrays import Texts
from onceflow_processor.handlers import Handlers
from onceflow_processor.log_reader import LogReader
from onceflow_processor.records import Partition, Record
from onceflow_processor.replay.fates import Fate, Judged, Marker, judge
from onceflow_processor.replay.request import Request, Stretch
from onceflow_processor.replay.tally import OTHER_TYPES, Tally
from onceflow_schemas.identity import Identity
from onceflow_schemas.sql import queries

PAGE_RECORDS_MAX: Final = 500
PAGE_BYTES_MAX: Final = 16_777_216
PAGE_SECONDS_MAX: Final = 60.0
"""How long the broker may take for one page."""

_SQL = queries("replay")


@dataclass(frozen=True, slots=True)
class Page:
    """Records of one partition in their order: ``offsets`` of all, ``judged`` those that were asked for.

    ``next_offset`` is where the next page begins.
    """

    partition: Partition
    offsets: Sequence[int]
    judged: Sequence[Judged]
    next_offset: int

    def count(self, tally: Tally, *, first: int = 0, end: int | None = None) -> None:
        """Count the records from ``first`` to before ``end``."""
        end = self.next_offset if end is None else end
        asked = [one for one in self.judged if first <= one.item.record.offset < end]
        records = bisect_left(self.offsets, end) - bisect_left(self.offsets, first)
        tally.records += records
        tally.passed_over += records - len(asked)
        tally.count(asked)


def _without_strangers(judged: Judged) -> Judged:
    """Only of what would run is the body read here: a record that cannot be the bridge's own has no event, as it had live."""
    item = judged.item
    if judged.fate is not Fate.RUN or item.event is None:
        return judged
    envelope = item.take_envelope()
    strange = stranger(item.record, event=item.event, envelope=envelope)
    if strange is None:
        item.envelope = envelope
        return judged
    return Judged(replace(item, event=None, fault=strange), Fate.UNTRUSTED, strange.code)


class HandledTypes:
    """What the registry says about types."""

    def __init__(self, handlers: Handlers) -> None:
        self._all = handlers
        self._replayed = handlers.for_replay()

    def has_handlers(self, event_type: str) -> bool:
        """Tell whether any handler takes the type."""
        return bool(self._all.for_type(event_type))

    def is_replayed(self, event_type: str) -> bool:
        """Tell whether a handler of the type may run in a replay."""
        return bool(self._replayed.for_type(event_type))


def left_out(handlers: Handlers, tally: Tally) -> tuple[str, ...]:
    """Return the handlers that a replay leaves out, sorted, of the types that it takes up."""
    met = [name for name, counts in tally.types.items() if counts.keys() & {Fate.RUN.value, Fate.LEFT_OUT.value}]
    if OTHER_TYPES in met:
        # Nobody knows any more which types these were.
        return handlers.left_out_of_replay()
    return tuple(sorted({one.name for name in met for one in handlers.for_type(name) if one.replay == "never"}))


class Survey:
    """Looks at stretches.

    Args:
        connection: idle between the pages; left idle.
        reader: of the event topic.
        request: what was asked for.
        admit: what a record is, by today's rules.
        handlers: the registry.
        cluster_id: of the cluster that is read.
        topic_id: of the topic that is read.
    """

    def __init__(
        self,
        connection: Connection[Any],
        reader: LogReader,
        *,
        request: Request,
        admit: Callable[[Record, datetime], Item],
        handlers: Handlers,
        cluster_id: str,
        topic_id: str,
    ) -> None:
        self._connection = connection
        self._reader = reader
        self._request = request
        self._admit = admit
        self._handled = HandledTypes(handlers)
        self._place = {"cluster_id": cluster_id, "topic_id": topic_id}

    def use(self, connection: Connection[Any]) -> None:
        """Look through another connection from now on."""
        self._connection = connection

    def pages(self, stretch: Stretch) -> Iterator[Page]:
        """Yield the pages of a stretch."""
        partition = Partition(self._request.topic, stretch.partition)
        with closing(self._reader.records(partition, stretch.first, end=stretch.end)) as records:
            while True:
                self._reader.renew(PAGE_SECONDS_MAX)
                page = _take(records)
                if not page:
                    return
                judged = self._judge(page, partition)
                yield Page(partition, [record.offset for record in page], judged, page[-1].offset + 1)

    def _judge(self, records: Sequence[Record], partition: Partition) -> list[Judged]:
        now = datetime.now(UTC)
        items = [item for record in records if self._request.takes(item := self._admit(record, now))]
        if not items:
            return []
        with self._connection.transaction():
            # Before the markers: every record before this position that will get one by itself has it when they are read.
            positions = dict(self._connection.execute(_SQL["positions"], self._place).fetchall())
            markers = self._markers(items)
        return [
            _without_strangers(
                judge(
                    item,
                    markers,
                    handled=self._handled,
                    rerun=self._request.rerun,
                    ignored=self._request.ignored,
                    next_offset=positions.get(partition.number),
                )
            )
            for item in items
        ]

    def _markers(self, items: Sequence[Item]) -> dict[Identity, Marker]:
        identities = [item.event.identity for item in items if item.event is not None]
        rows = self._connection.execute(
            _SQL["markers"],
            {
                "accounts": Texts(one.account for one in identities),
                "modes": Texts(one.mode for one in identities),
                "event_ids": Texts(one.event_id for one in identities),
            },
        ).fetchall()
        return {Identity(*row[:3]): Marker(row[3]) for row in rows}


def _take(records: Iterator[Record]) -> list[Record]:
    page: list[Record] = []
    size = 0
    for record in records:
        page.append(record)
        size += record.size_bytes()
        if len(page) >= PAGE_RECORDS_MAX or size >= PAGE_BYTES_MAX:
            break
    return page
