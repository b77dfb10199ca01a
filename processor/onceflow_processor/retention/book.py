"""What is known of what was deleted.  Values only.

Rule: times are the database's, and ``gone_before`` never goes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

SWEEP_INTERVAL: Final = timedelta(hours=24)
"""From the end of one sweep to the begin of the next, by the database's clock."""
LATE_AFTER: Final = 3 * SWEEP_INTERVAL
FIRST_TABLE: Final = "quarantine"
"""The table that each round begins with, also where markers and outcomes are kept for ever."""


@dataclass(frozen=True, slots=True)
class Line:
    """How far one table has come; times are the database's.

    Args:
        name: ``inbox``, ``quarantine``, ``object_read`` or ``outcome/<lane>``.
        gone_before: rows from before this time may be gone.
        deleted: how many ever were.
        oldest: of what the last sweep left; None when nothing was.
        swept_at: the end of the last sweep.
        now: when this was read.
    """

    name: str
    gone_before: datetime | None
    deleted: int
    oldest: datetime | None
    swept_at: datetime | None
    now: datetime


@dataclass(frozen=True, slots=True)
class Gone:
    """From when on all markers and all outcomes are there; None where none was ever deleted."""

    markers: datetime | None
    outcomes: datetime | None


def is_due(line: Line | None) -> bool:
    """Tell whether a table is to be swept now."""
    return line is None or line.swept_at is None or line.now - line.swept_at >= SWEEP_INTERVAL


def lateness(book: Sequence[Line]) -> timedelta | None:
    """Return how long ago the duty last finished its first table, when that is too long; None when all is well."""
    for line in book:
        if line.name == FIRST_TABLE and line.swept_at is not None and line.now - line.swept_at > LATE_AFTER:
            return line.now - line.swept_at
    return None
