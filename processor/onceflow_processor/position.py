"""Positions of partitions: what a process holds, and whether a stored position agrees with the log.

Rule: a position is believed only when the log still holds what was read before it.  Every disagreement has a code and
stops that partition; nothing is clamped and nothing is skipped silently.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """How far a partition is done, as this process read it; the epoch and the offset are its fence."""

    topic_id: str
    epoch: int
    next_offset: int
    fingerprint: str | None


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The first offset that a log holds and the one after its last."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Begin:
    """Read from ``offset``; the first record must have ``fingerprint`` and is dropped, when there is one."""

    offset: int
    next_offset: int
    fingerprint: str | None


@dataclass(frozen=True, slots=True)
class Stop:
    """The partition stands still; ``code`` is a failure code, ``detail`` a plain sentence."""

    code: str
    detail: str


def judge_position(position: Position, bounds: LogBounds) -> Begin | Stop:
    """Compare a stored position with the bounds of the log.

    The record before the position is read again and compared; where retention has removed it, that is legal only as
    long as nothing unread went with it.
    """
    next_offset = position.next_offset
    if bounds.high < next_offset:
        return Stop("tail_lost", f"the log ends at {bounds.high}, but everything before {next_offset} was read from it")
    if bounds.low > next_offset:
        lost = f"{next_offset} to {bounds.low - 1}"
        return Stop("log_start_passed", f"retention removed the records {lost} before they were read")
    if position.fingerprint is None:
        return Begin(next_offset, next_offset, None)
    before = fingerprint_offset(position.fingerprint)
    if before < bounds.low:
        return Begin(next_offset, next_offset, None)
    return Begin(before, next_offset, position.fingerprint)


def judge_first_record(
    begin: Begin, *, offset: int, fingerprint: str, low: int, compacted: bool = False
) -> Stop | None:
    """Compare the first record that was read with the fingerprint; None when it agrees.

    Args:
        begin: where reading was to begin, and what was read there before.
        offset: of the first record.
        fingerprint: of the first record.
        low: the first offset that the log holds now: retention may have taken the record since the position was judged.
        compacted: Kafka removes records from the middle of this log, so that one that is gone says nothing.
    """
    if begin.fingerprint is None or fingerprint == begin.fingerprint or begin.offset < low <= begin.next_offset:
        return None
    if low > begin.next_offset:
        lost = f"{begin.next_offset} to {low - 1}"
        return Stop("log_start_passed", f"retention removed the records {lost} before they were read")
    if offset == begin.offset:
        return Stop("fingerprint_differs", f"the record at {offset} is not the one that was read there before")
    if compacted:
        return None
    return Stop(
        "fingerprint_differs", f"the record at {begin.offset} is gone from the middle of the log: {offset} came first"
    )


def fingerprint_offset(fingerprint: str) -> int:
    """Return the offset that a fingerprint names."""
    return int(fingerprint.partition(" ")[0])
