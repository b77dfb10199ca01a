"""How far a list of an account was handed over.

Rule: a cursor never goes back by moving on: a reconciler that slept must not undo what another has done since.  It is set back only
where something was lost.
"""

from __future__ import annotations

from typing import Any, Final

from psycopg import Connection

from onceflow_schemas.sql import queries

AGAIN: Final = "events_again"
NEVER: Final = 4_102_444_800
"""The year 2100, where a cursor stands that has nothing to do."""

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


def note_losses(connection: Connection[Any], *, account: str, mode: str) -> bool:
    """Have the event list read again where a ledger was put back or lost records since the last call; tell whether it is.

    What was counted as on its way may be gone with a topic's records, so that no cursor would ever meet it again.
    """
    given = {"account": account, "mode": mode, "source": AGAIN}
    return connection.execute(_SQL["note_losses"], given).fetchone() is not None


def set_back_objects(connection: Connection[Any], *, account: str, mode: str, to: int) -> None:
    """Have the lists of objects compared again from this time on, in unix seconds."""
    connection.execute(_SQL["set_back_objects"], {"account": account, "mode": mode, "to": max(0, to)})
