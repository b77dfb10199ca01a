"""What a failed statement means for a batch, as one pure table over SQLSTATE.

Rule: whoever is at fault pays.  A fault of the moment reruns the whole batch, a fault of the data costs one event, a
database that is away costs nobody anything but time.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import psycopg

from onceflow_schemas.failure import Misconfigured


class Meaning(Enum):
    """What to do after a failed statement."""

    RERUN = "rerun"  # Deadlock, serialisation, lock wait: the same batch again, with jitter.
    AWAY = "away"  # The database does not answer or refuses writes: wait and go on.
    FENCED = "fenced"  # Another epoch holds a partition.
    GUARD = "guard"  # A handler ended the transaction.
    FACT = "fact"  # A fact was taken meanwhile: look up and rerun.
    CONFLICT = "conflict"  # An operation is known with other arguments: look up and rerun.
    LANE = "lane"  # A lane hands out no sequence.
    DATA = "data"  # The event's own doing.


_OURS = {
    "OF001": Meaning.FENCED,
    "OF002": Meaning.GUARD,
    "OF003": Meaning.FACT,
    "OF004": Meaning.LANE,
    "OF006": Meaning.CONFLICT,
}

_RERUN = frozenset({"40001", "40P01", "55P03", "40003", "57014", "25P03", "25P04"})
"""Serialisation failure, deadlock, lock not available, statement completion unknown, query canceled (an operator's
pg_cancel_backend), idle or transaction timeout."""

_POOLED = frozenset({"42P05", "26000"})
"""A prepared statement that exists already, or no longer: a pooler gave us a server connection of somebody else."""

_AWAY = _POOLED | frozenset(
    {"25006", "53000", "53100", "53200", "53300", "53400", "57P01", "57P02", "57P03", "57P04", "57P05"}
)
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
    found = _database_error(error)
    if found is None:
        return None
    if ours and (found.sqlstate or "").startswith(_NEVER_AN_EVENTS_FAULT):
        return Meaning.AWAY
    return _meaning_of_database(found)


def pooler_fault(error: BaseException) -> Misconfigured | None:
    """Return what a person must change when prepared statements met a pooler; None when the error is another one."""
    found = next((one for one in _database_errors(error) if one.sqlstate in _POOLED), None)
    if found is None:
        return None
    message = f"a pooler that shares connections stands before PostgreSQL ({found.sqlstate}): "
    return Misconfigured("settings_invalid", message + "set database.prepared to false")


def _database_error(error: BaseException | None) -> psycopg.Error | None:
    """Return the first database error in the chain of what led to an error."""
    return next(_database_errors(error), None)


def _database_errors(error: BaseException | None) -> Iterator[psycopg.Error]:
    """Walk the chain of what led to an error; ``raise error from error`` makes it a circle."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, psycopg.Error):
            yield error
        error = error.__cause__ or error.__context__


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
