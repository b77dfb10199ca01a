"""What a failed statement means for a batch: the table of ``onceflow_schemas.failure_course``, and what only a batch knows.

Rule: the first database error in the chain of what led to an error counts, whoever wrapped it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import psycopg

from onceflow_schemas.failure import Misconfigured
from onceflow_schemas.failure_course import Course, course_of_sqlstate


class Meaning(Enum):
    """What to do after a failed statement."""

    RERUN = "rerun"  # Deadlock, serialisation, lock wait: the same batch again, with jitter.
    AWAY = "away"  # The database does not answer or refuses writes: wait and go on.
    FENCED = "fenced"  # Somebody else holds a partition, or redrives a key.
    GUARD = "guard"  # A handler ended the transaction.
    FACT = "fact"  # A fact was taken meanwhile: look up and rerun.
    CONFLICT = "conflict"  # An operation is known with other arguments: look up and rerun.
    LANE = "lane"  # A lane hands out no sequence.
    DATA = "data"  # The event's own doing.


_OURS = {
    "OF002": Meaning.GUARD,
    "OF003": Meaning.FACT,
    "OF004": Meaning.LANE,
    "OF006": Meaning.CONFLICT,
}

_MEANINGS = {
    Course.RERUN: Meaning.RERUN,
    Course.PAUSE: Meaning.AWAY,
    Course.STOP: Meaning.AWAY,
    Course.TAKE_OVER: Meaning.FENCED,
    Course.QUARANTINE: Meaning.DATA,
    Course.PARK: Meaning.DATA,
}

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


def sqlstate_of(error: BaseException) -> str | None:
    """Return the SQLSTATE of the first database error in the chain; None when there is none, or the server said nothing."""
    found = _database_error(error)
    return None if found is None else found.sqlstate


def pooler_fault(error: BaseException) -> Misconfigured | None:
    """Return what a person must change when prepared statements met a pooler; None when the error is another one."""
    states = ((one, one.sqlstate or "") for one in _database_errors(error))
    found = next((one for one, state in states if course_of_sqlstate(state) is Course.STOP), None)
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
    return _OURS.get(state) or _MEANINGS[course_of_sqlstate(state)]
