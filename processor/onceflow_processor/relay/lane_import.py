"""Brings the outcomes of a topic back into a database that was put back, by the relay, before a sequence is handed out.

Rule: page after page behind the head, each page one transaction under the lease's token; so a relay that dies anywhere leaves a
lane that is still closed, and the next one goes on behind its head.  The lane is opened only by the comparison that
follows, which reads every record behind ``published_seq`` and finds its row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

import structlog

from onceflow_processor.relay.cursor import Disagrees
from onceflow_processor.relay.importing import Imported, Lane, TopicRecord, next_row, not_importable
from onceflow_processor.relay.lane_store import ImportPage, LaneStore
from onceflow_processor.relay.topic_tail import TopicTail

PAGE_ROWS_MAX: Final = 1_000
PAGE_BYTES_MAX: Final = 8_000_000
SLICE_SECONDS_MAX: Final = 15.0
"""The other lanes of the relay wait meanwhile; the import goes on at the next look."""

_log = structlog.get_logger("onceflow.relay")


@dataclass(frozen=True, slots=True)
class Behind:
    """A lane that is behind: its number and state, its head, and the last sequence that the topic has."""

    lane: int
    state: str
    head: int
    topic_head: int


class LaneImport:
    """Imports for one term of a relay.

    Args:
        store: lanes and outcomes.
        deployment: whose outcomes are taken.
        owner: of the lease, for the audit.
        token: the lease's.
        keep_lease: called between pages.
    """

    def __init__(
        self, store: LaneStore, *, deployment: str, owner: str, token: int, keep_lease: Callable[[], None]
    ) -> None:
        self._store, self._deployment, self._owner, self._token = store, deployment, owner, token
        self._keep_lease = keep_lease

    def run(self, behind: Behind, tail: TopicTail) -> int | Disagrees:
        """Import a slice; returns how many outcomes came back, or why the topic cannot be believed.

        Raises:
            LeaseLost: another relay holds the lease.
            Unavailable: Kafka or the database is away, or the lane changed meanwhile; what was imported stays.
        """
        lane, head = behind.lane, behind.head
        if behind.state != "recovering":
            _log.warning("lane_import_begins", lane=lane, head=head, topic_head=behind.topic_head)
        known = self._store.ids([(lane, head)])[lane]
        extent = tail.extents([lane])[lane]
        place = Lane(lane, self._deployment, head, known.get(head))
        imported = 0
        give_up_at = time.monotonic() + SLICE_SECONDS_MAX
        with closing(tail.whole_records_around(lane, head, extent=extent)) as records:
            while True:
                page = _page(records, place)
                if page.rows:
                    given = ImportPage(lane, place.head, behind.topic_head, page.rows)
                    wrong = self._store.import_page(self._token, given, who=self._owner)
                    if wrong is not None:
                        return wrong
                    imported += len(page.rows)
                    place = replace(place, head=page.rows[-1].seq, head_id=page.rows[-1].ce_id)
                if page.fault is not None:
                    return page.fault
                if not page.rows or time.monotonic() > give_up_at:
                    break
                self._keep_lease()
        if imported == 0:
            return not_importable(f"the topic does not hold sequence {head + 1} any more")
        _log.warning("lane_imported", lane=lane, outcomes=imported, head=place.head, topic_head=behind.topic_head)
        return imported


@dataclass(frozen=True, slots=True)
class _Page:
    rows: list[Imported]
    fault: Disagrees | None


def _page(records: Iterator[TopicRecord], place: Lane) -> _Page:
    """Read the next rows, up to the limits of a page; no row and no fault at the end of the topic."""
    rows: list[Imported] = []
    size = 0
    while len(rows) < PAGE_ROWS_MAX and size < PAGE_BYTES_MAX:
        record = next(records, None)
        if record is None:
            break
        found = next_row(record, lane=place)
        if isinstance(found, Disagrees):
            return _Page(rows, found)
        if found is not None:
            rows.append(found)
            size += len(found.value) + len(found.headers)
            place = replace(place, head=found.seq, head_id=found.ce_id)
    return _Page(rows, None)
