"""The row of a replay: what was asked for, how far it is, what came of it; written with each batch.

Rule: whoever goes on with a run raises its epoch, so that a process which was only thought dead writes nothing more; what is
begun, taken up again and ended has a row in the audit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol

from psycopg import Connection
from psycopg.rows import dict_row

from onceflow_processor.admission import Item
from onceflow_processor.records import Partition
from onceflow_processor.replay.request import Request, Stretch
from onceflow_processor.replay.survey import Page
from onceflow_processor.replay.tally import Tally, tally_of
from onceflow_schemas.failure import Refused
from onceflow_schemas.sql import queries
from onceflow_schemas.topic_ids import shown_topic_id

_SQL = queries("replay")
_AUDIT = queries("operating")["audit"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run reads: the ids of cluster and topic."""

    cluster_id: str
    topic_id: str
    topic: str


@dataclass(frozen=True, slots=True)
class Run:
    """A run that this process has in hand; ``left`` are the stretches that are not done."""

    id: int
    epoch: int
    place: Place
    filters: Mapping[str, Any]
    left: Sequence[Stretch]
    tally: Tally
    who: str
    reason: str


def begin(
    connection: Connection[Any], request: Request, *, place: Place, stretches: Sequence[Stretch], who: str, owner: str
) -> Run:
    """Begin a run, with its row in the audit."""
    tally, filters = Tally(), request.filters()
    with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(
            _SQL["run_begin"],
            {
                "kind": "rerun" if request.rerun else "replay",
                "cluster_id": place.cluster_id,
                "topic_id": place.topic_id,
                "topic": place.topic,
                "filters": json.dumps(filters),
                "counts": json.dumps(tally.as_json()),
                "owner": owner,
                "who": who,
                "reason": request.reason,
            },
        ).fetchone()
        assert row is not None, "an insert returns its row"
        given = {
            "run_id": row["id"],
            "partitions": [one.partition for one in stretches],
            "firsts": [one.first for one in stretches],
            "ends": [one.end for one in stretches],
        }
        cursor.execute(_SQL["run_stretches"], given)
        run = Run(row["id"], row["epoch"], place, filters, stretches, tally, who, request.reason)
        _audit(connection, run, "replay_begun", who=who, after={"filters": filters, "stretches": _shown(stretches)})
    return run


def take(connection: Connection[Any], run_id: int, *, who: str, owner: str) -> Run:
    """Go on with a run; whoever had it before is fenced.

    Raises:
        Refused: ``replay_run_refused``: there is no such run, or it is done.
    """
    with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(_SQL["run_take"], {"run_id": run_id, "owner": owner}).fetchone()
        if row is None:
            known = cursor.execute(_SQL["run_state"], {"run_id": run_id}).fetchone()
            state = "there is no such run" if known is None else f"it is {known['state']}"
            raise Refused("replay_run_refused", f"replay {run_id} cannot go on: {state}")
        left = [
            Stretch(one["partition"], one["next_offset"], one["to_offset"])
            for one in cursor.execute(_SQL["run_left"], {"run_id": run_id}).fetchall()
            if one["next_offset"] < one["to_offset"]
        ]
        run = Run(
            row["id"],
            row["epoch"],
            Place(row["cluster_id"], row["topic_id"], row["topic"]),
            row["filters"],
            left,
            tally_of(row["counts"]),
            row["who"],
            row["reason"],
        )
        _audit(connection, run, "replay_resumed", who=who, after={"left": _shown(left)})
    return run


def end(connection: Connection[Any], run: Run, *, tally: Tally, who: str) -> None:
    """Close a run whose stretches are done.

    Raises:
        psycopg.Error: SQLSTATE OF001: another process goes on with it.
    """
    counts = tally.as_json()
    with connection.transaction():
        given = {"run_id": run.id, "epoch": run.epoch, "counts": json.dumps(counts)}
        connection.execute(_SQL["run_done"], given)
        _audit(connection, run, "replay_ended", who=who, after=counts)


class Progress(Protocol):
    """Where a replay stands in one partition, and what it has counted."""

    tally: Tally

    @property
    def run_id(self) -> int | None:
        """The run's; None for a look."""

    def begin_page(self, page: Page) -> None:
        """The next page is in hand."""

    def note(self, connection: Connection[Any], items: Sequence[Item], *, counts: Mapping[str, int]) -> None:
        """Everything up to the last of the items is done in the transaction in hand."""

    def committed(self, next_offset: int) -> None:
        """Everything before this offset is committed, as far as it was noted."""

    def end_page(self, connection: Connection[Any]) -> None:
        """The page is done."""

    def end_stretch(self, connection: Connection[Any], stretch: Stretch) -> None:
        """The stretch is done."""


class LookProgress:
    """Only counts: a look has no row."""

    run_id = None

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    def begin_page(self, page: Page) -> None:
        """Count its records."""
        page.count(self.tally)

    def note(self, connection: Connection[Any], items: Sequence[Item], *, counts: Mapping[str, int]) -> None:
        """Count what was found."""
        del connection, items
        self.tally.note(counts)

    def committed(self, next_offset: int) -> None:
        """Nothing is committed."""

    def end_page(self, connection: Connection[Any]) -> None:
        """Nothing is written."""

    def end_stretch(self, connection: Connection[Any], stretch: Stretch) -> None:
        """Nothing is written."""


class RunProgress:
    """Where a run stands in one partition, and what it has counted; both move with each commit.

    Args:
        run: this process has it in hand.
        stretch: what is left of the partition.
        tally: what the run has counted until now.
    """

    def __init__(self, run: Run, stretch: Stretch, tally: Tally) -> None:
        self._run = run
        self.run_id = run.id
        self._partition = stretch.partition
        self._page: Page | None = None
        self._moving: tuple[int, Tally] | None = None
        self.next_offset = stretch.first
        self.tally = tally

    def begin_page(self, page: Page) -> None:
        """The next page is in hand."""
        self._page = page

    def note(self, connection: Connection[Any], items: Sequence[Item], *, counts: Mapping[str, int]) -> None:
        """Write, in the transaction that carries these items, that everything up to the last of them is done."""
        self._write(connection, items[-1].record.offset + 1, counts)

    def committed(self, next_offset: int) -> None:
        """Everything before this offset is committed, as far as it was noted."""
        if self._moving is not None and self._moving[0] == next_offset:
            self.next_offset, self.tally = self._moving
            self._moving = None

    def end_page(self, connection: Connection[Any]) -> None:
        """Note what of the page comes after the last item that ran."""
        assert self._page is not None, "a page was begun"
        if self.next_offset < self._page.next_offset:
            with connection.transaction():
                self._write(connection, self._page.next_offset, {})
            self.committed(self._page.next_offset)

    def end_stretch(self, connection: Connection[Any], stretch: Stretch) -> None:
        """Note that nothing is left: offsets behind the last record may hold nothing, as those of control markers."""
        if self.next_offset < stretch.end:
            self._page = Page(Partition("", self._partition), (), (), stretch.end)
            self.end_page(connection)

    def _write(self, connection: Connection[Any], next_offset: int, counts: Mapping[str, int]) -> None:
        assert self._page is not None, "a page was begun"
        tally = deepcopy(self.tally)
        self._page.count(tally, first=self.next_offset, end=next_offset)
        tally.note(counts)
        self._moving = (next_offset, tally)
        connection.execute(
            _SQL["run_moved"],
            {
                "run_id": self._run.id,
                "epoch": self._run.epoch,
                "partition": self._partition,
                "from_offset": self.next_offset,
                "next_offset": next_offset,
                "counts": json.dumps(tally.as_json()),
            },
        )


def _shown(stretches: Sequence[Stretch]) -> list[dict[str, int]]:
    return [{"partition": one.partition, "from_offset": one.first, "to_offset": one.end} for one in stretches]


def _audit(connection: Connection[Any], run: Run, action: str, *, who: str, after: Mapping[str, Any]) -> None:
    connection.execute(
        _AUDIT,
        {
            "who": who,
            "action": action,
            "subject": f"replay {run.id} of {run.place.topic}, topic id {shown_topic_id(run.place.topic_id)}",
            "before": "null",
            "after": json.dumps(after),
            "reason": run.reason,
        },
    )
