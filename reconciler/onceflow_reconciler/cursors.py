"""How far a list of an account was handed over.

Rule: a cursor never goes back by moving on: a reconciler that slept must not undo what another has done since.  It is set back only
where something was lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from psycopg import Connection

from onceflow_schemas.sql import queries

AGAIN: Final = "events_again"
NEVER: Final = 4_102_444_800
"""The year 2100, where a cursor stands that has nothing to do."""

NOTED_PREFIX: Final = "loss "
"""Of the sources under which it is kept, by its number, that a decision was noted."""

_SQL = queries("reconcile")


class Cursor:
    """One cursor; ``source`` names the list."""

    def __init__(self, connection: Connection[Any], *, account: str, mode: str, source: str) -> None:
        self._connection = connection
        self._key = {"account": account, "mode": mode, "source": source}

    def read(self, *, first: int) -> int:
        """Return where it stands, in unix seconds; ``first`` is where a new one begins."""
        row = self._connection.execute(_SQL["cursor"], self._key).fetchone()
        return first if row is None else int(row[0])

    def move(self, until: int) -> None:
        """Everything before this was handed over."""
        self._connection.execute(_SQL["move_cursor"], {**self._key, "done_until": until})

    def begin(self, *, first: int) -> Begun:
        """Return where it stands, for who moves it only while nobody else has."""
        row = self._connection.execute(_SQL["cursor_begun"], self._key).fetchone()
        at, moved_at = (first, None) if row is None else (int(row[0]), row[1])
        return Begun(self._connection, {**self._key, "moved_at": moved_at}, at)


@dataclass(frozen=True, slots=True)
class Begun:
    """Where a cursor stood, in unix seconds, when a stretch behind it was begun."""

    _connection: Connection[Any]
    _given: Mapping[str, Any]
    at: int

    def move(self, until: int) -> None:
        """Everything before this was handed over, unless the cursor was set back meanwhile: then that holds."""
        self._connection.execute(_SQL["move_begun"], {**self._given, "done_until": until})


def note_losses(connection: Connection[Any], *, account: str, mode: str, topics: Mapping[str, str]) -> bool:
    """Have the event list read again where a ledger was put back or lost records since the last call; tell whether it is.

    What was counted as on its way may be gone with a topic's records, so that no cursor would ever meet it again.

    Args:
        connection: in autocommit.
        account, mode: whose list.
        topics: ids of the event topics of now, by name.
    """
    given: dict[str, object] = {"account": account, "mode": mode, "source": AGAIN, "noted": NOTED_PREFIX}
    given |= {"topics": list(topics), "topic_ids": list(topics.values())}
    return connection.execute(_SQL["note_losses"], given).fetchone() is not None


def set_back_objects(connection: Connection[Any], *, account: str, mode: str, to: int) -> None:
    """Have the lists of objects compared again from this time on, in unix seconds."""
    given = {"account": account, "mode": mode, "to": max(0, to), "noted": NOTED_PREFIX}
    connection.execute(_SQL["set_back_objects"], given)
