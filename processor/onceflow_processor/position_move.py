"""What it means to set the position of a partition: which records are read again, which are skipped.  Pure.

Rule: no record is skipped without a state unless a person accepts the loss by name; what cannot be counted counts as
lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from onceflow_processor.position import LogBounds

Kind = Literal["begin", "again", "skip", "same"]


@dataclass(frozen=True, slots=True)
class Move:
    """A position to be set.

    Args:
        kind: ``begin`` (no position in this topic yet), ``again`` (back), ``skip`` (forward), ``same``.
        next_offset: the new position.
        first: the first offset of the range that is read again or skipped.
        end: the offset behind that range; equal to ``first`` when it is empty.
        gone: how many offsets of the range the log does not hold any more (or not yet).
        bounds: of the log.
    """

    kind: Kind
    next_offset: int
    first: int
    end: int
    gone: int
    bounds: LogBounds

    @property
    def held(self) -> tuple[int, int]:
        """The part of the range that the log holds: first offset and the one behind the last."""
        first = min(max(self.first, self.bounds.low), self.bounds.high)
        return first, max(first, min(self.end, self.bounds.high))

    @property
    def ahead(self) -> tuple[int, int]:
        """What a partition that is begun reads first, as ``held``; empty for every other move."""
        first = self.next_offset if self.kind == "begin" else self.bounds.high
        return first, self.bounds.high


@dataclass(frozen=True, slots=True)
class Counted:
    """The records of a range; ``complete`` is False when there were too many to count."""

    records: int = 0
    with_state: int = 0
    complete: bool = True


@dataclass(frozen=True, slots=True)
class NotPossible:
    """Why a position cannot be set, and the next step."""

    reason: str
    hint: str


def plan_move(present: int | None, bounds: LogBounds, *, target: int) -> Move | NotPossible:
    """Say what setting a position to ``target`` does.

    Args:
        present: the stored position; None when the topic has none for this partition.
        bounds: what the log holds.
        target: the new position.
    """
    if not bounds.low <= target <= bounds.high:
        return NotPossible(
            f"offset {target} is not in the log, which begins at {bounds.low} and ends at {bounds.high}",
            f"Choose an offset from {bounds.low} to {bounds.high}; {bounds.high} waits for the next record.",
        )
    if present is None:
        return Move("begin", target, 0, target, min(bounds.low, target), bounds)
    if target == present:
        return Move("same", target, target, target, 0, bounds)
    first, end = min(target, present), max(target, present)
    gone = max(0, min(end, bounds.low) - first) + max(0, end - max(first, bounds.high))
    return Move("again" if target < present else "skip", target, first, end, gone, bounds)


def loss(move: Move, counted: Counted) -> str | None:
    """Return what would be lost, as a sentence; None when every record that is passed has a state."""
    if move.kind in ("again", "same"):
        return None
    parts = []
    if move.gone:
        parts.append(f"{move.gone} offsets before {move.bounds.low} that the log does not hold any more")
    if not counted.complete:
        parts.append(f"records that were not counted, since there are more than {counted.records}")
    elif counted.records > counted.with_state:
        parts.append(f"{counted.records - counted.with_state} records without a state")
    return " and ".join(parts) or None


def effect(move: Move, counted: Counted, *, ahead: Counted) -> str:
    """Say in plain words what the move does with records.

    Args:
        move: the move.
        counted: the records of its range.
        ahead: the records that a partition which is begun reads first.
    """
    first, end = move.held
    counts = _counts(counted)
    match move.kind:
        case "same":
            return f"nothing is read again or skipped: the partition goes on at {move.next_offset}"
        case "again":
            text = f"offsets {move.first} to {move.end - 1} are read again ({counts}; these take no effect again)"
            if not counted.records:
                text = f"the position goes back from {move.end} to {move.next_offset}, where the log has nothing to read again"
        case _:
            text = f"offsets {move.first} to {move.end - 1} are skipped ({counts})"
            if move.first == move.end:
                text = f"the partition is read from {move.next_offset} on, nothing is skipped"
    if move.gone and (first, end) != (move.first, move.end):
        text += f"; {move.gone} of these offsets are not in the log"
    if move.kind == "begin":
        text += f"; from {move.next_offset} on there are {_counts(ahead)}"
    return text


def _counts(counted: Counted) -> str:
    if not counted.records:
        return "no records"
    many = f"{counted.records} records" if counted.complete else f"more than {counted.records} records"
    return f"{many}, {counted.with_state} of them with a state"
