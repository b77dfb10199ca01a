"""What a failed statement means for a batch, as one pure table over SQLSTATE.

Rule: whoever is at fault pays.  A fault of the moment reruns the whole batch, a fault of the data costs one event, a
database that is away costs nobody anything but time.
"""

from __future__ import annotations

from enum import Enum

import psycopg


class Meaning(Enum):
    """What to do after a failed statement."""

    RERUN = "rerun"  # Deadlock, serialisation, lock wait: the same batch again, with jitter.
    AWAY = "away"  # The database does not answer or refuses writes: wait and go on.
    FENCED = "fenced"  # Another epoch holds a partition.
    GUARD = "guard"  # A handler ended the transaction.
    FACT = "fact"  # A fact was taken meanwhile: look up and rerun.
    LANE = "lane"  # A lane hands out no sequence.
    DATA = "data"  # The event's own doing.


_OURS = {
    "OF001": Meaning.FENCED,
    "OF002": Meaning.GUARD,
    "OF003": Meaning.FACT,
    "OF004": Meaning.LANE,
}

_RERUN = frozenset({"40001", "40P01", "55P03", "40003", "57014", "25P03", "25P04"})
"""Serialisation failure, deadlock, lock not available, statement completion unknown, query canceled (an operator's
pg_cancel_backend), idle or transaction timeout."""

_AWAY = frozenset({"25006", "53000", "53100", "53200", "53300", "53400", "57P01", "57P02", "57P03", "57P04", "57P05"})
"""Read-only, disk full, out of memory, too many connections, shutdown, crash, cannot connect now."""

_AWAY_CLASSES = ("08", "58", "XX")

_NEVER_AN_EVENTS_FAULT = ("0A", "28", "3D", "3F", "42")
"""Missing rights, tables or features: in a statement of ours that is the database's state, in a handler's its bug."""


def meaning_of(error: BaseException, *, ours: bool = False) -> Meaning | None:
    """Return what an error, or the database error that caused it, means; None when no database error is in its chain.

    Args:
        error: what was raised.
        ours: True when a statement of ours failed, not one of a handler.

    A handler that wraps a deadlock in an error of its own is still not at fault, so the chain is followed.
    """
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        if isinstance(current, psycopg.Error):
            if ours and (current.sqlstate or "").startswith(_NEVER_AN_EVENTS_FAULT):
                return Meaning.AWAY
            return _meaning_of_database(current)
        current = current.__cause__ or current.__context__
    return None


def _meaning_of_database(error: psycopg.Error) -> Meaning:
    state = error.sqlstate
    if state is None:
        # Without a state the server said nothing: the connection broke, or psycopg refused the data itself.
        away = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return Meaning.AWAY if away else Meaning.DATA
    if state in _OURS:
        return _OURS[state]
    if state in _RERUN:
        return Meaning.RERUN
    if state in _AWAY or state.startswith(_AWAY_CLASSES):
        return Meaning.AWAY
    return Meaning.DATA
