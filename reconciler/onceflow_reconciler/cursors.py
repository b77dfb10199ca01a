"""How far a list of an account was handed over.

Rule: a cursor never goes back: a reconciler that slept must not undo what another has done since.
"""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from onceflow_schemas.sql import queries

_SQL = queries("reconcile")


class Cursor:
    """One cursor; ``source`` names the list."""

    def __init__(self, connection: Connection[Any], *, account: str, mode: str, source: str) -> None:
        self._connection = connection
        self._key = {"account": account, "mode": mode, "source": source}

    def read(self, *, first: int) -> int:
        """Return where it stands, in unix seconds; ``first`` is where a new one begins."""
        self._connection.execute(_SQL["begin_cursor"], {**self._key, "done_until": first})
        row = self._connection.execute(_SQL["cursor"], self._key).fetchone()
        assert row is not None, "it was made"
        return int(row[0])

    def move(self, until: int) -> None:
        """Everything before this was handed over."""
        self._connection.execute(_SQL["move_cursor"], {**self._key, "done_until": until})
