"""What a partition's position says to a person: running, waiting or stopped, and the next step.  Pure.

Rule: every stop is told with its plain sentence and a first command; nothing that stands still is shown as running.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from onceflow_processor.position import LogBounds, Position, Stop, judge_position
from onceflow_schemas.failure import FAILURES

State = Literal["running", "released", "waiting", "stopped", "former", "not begun", "unknown"]

_MOVES = {
    "tail_lost": "--offset <log end>",
    "log_start_passed": "--earliest --accept-loss",
    "fingerprint_differs": "--earliest",
    "topic_changed": "--earliest",
    "offset_out_of_range": "--earliest",
}
"""The usual decision for each code; ``docs/operating/positions.md`` says when another one is right."""


@dataclass(frozen=True, slots=True)
class PositionRow:
    """A row of ``onceflow.progress``, or the partition of a topic that has none (``next_offset`` None)."""

    topic: str
    topic_id: str
    partition: int
    next_offset: int | None = None
    fingerprint: str | None = None
    epoch: int | None = None
    owner: str = ""
    clean: bool = False
    stopped: str | None = None
    waiting: str | None = None


@dataclass(frozen=True, slots=True)
class Reported:
    """A row with what the log and the codes say about it; ``bounds`` None when Kafka was not asked or has no such topic.

    ``read_out``: behind the position the log holds no record, only the marks that transactions leave.
    """

    row: PositionRow
    bounds: LogBounds | None
    state: State
    code: str = ""
    meaning: str = ""
    next_step: str = ""
    read_out: bool = False

    @property
    def lag(self) -> int | None:
        """How many offsets are still to be read."""
        if self.bounds is None or self.row.next_offset is None:
            return None
        return 0 if self.read_out else max(0, self.bounds.high - self.row.next_offset)


def report(row: PositionRow, bounds: LogBounds | None, *, current_id: str | None, has_former: bool = False) -> Reported:
    """Describe one row.

    Args:
        row: as stored, or without a position.
        bounds: of the log of this very topic id; None when unknown.
        current_id: the id that the topic of this name has now; None when Kafka was not asked or has none.
        has_former: there is a row for another topic of the same name.
    """
    if row.next_offset is None:
        if has_former:
            return _stopped(row, bounds, code="topic_changed")
        return Reported(row, bounds, "not begun", next_step="Nothing to do: the processor begins it.")
    if current_id is not None and row.topic_id != current_id:
        meaning = "The topic of this position is gone, or in another cluster."
        return Reported(row, None, "former", meaning=meaning)
    # Kafka's own refusal of an offset says least; what the log looks like now says why.
    if row.stopped not in (None, "offset_out_of_range"):
        return _stopped(row, bounds, code=row.stopped)
    if bounds is not None:
        verdict = judge_position(Position(row.topic_id, row.epoch or 0, row.next_offset, row.fingerprint), bounds)
        if isinstance(verdict, Stop):
            return _stopped(row, bounds, code=verdict.code)
    if row.stopped is not None:
        return _stopped(row, bounds, code=row.stopped)
    if row.waiting is not None:
        return Reported(row, bounds, "waiting", meaning=row.waiting, next_step=_after_waiting(row.waiting))
    return Reported(row, bounds, "released" if row.clean else "running")


def _after_waiting(reason: str) -> str:
    if reason.startswith("lane "):
        return "Run `onceflow lanes show`: it goes on by itself when that lane does."
    return "Mend the handler and start the processor again: then it is tried anew."


def _stopped(row: PositionRow, bounds: LogBounds | None, *, code: str) -> Reported:
    kind = FAILURES.get(code)
    meaning = kind.meaning if kind is not None else "A code of another release."
    move = _MOVES.get(code, "--offset N").replace("<log end>", "N" if bounds is None else str(bounds.high))
    step = f"onceflow progress set {row.topic} {row.partition} {move} --reason '...'"
    return Reported(row, bounds, "stopped", code, meaning, step)
