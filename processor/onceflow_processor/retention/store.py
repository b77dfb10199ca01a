"""What the duty asks the database to delete, one short transaction at a time, and what others ask about it.

Rule: this side never says which rows are old: the functions in the database do, by two clocks and with a floor of their
own, under the token of the relay's lease.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row, tuple_row

from onceflow_processor.relay.lane_store import database_failures
from onceflow_processor.retention.book import Gone, Line
from onceflow_processor.retention.needs import refused_before
from onceflow_schemas.failure import Unavailable
from onceflow_schemas.sql import queries

LOCK_TIMEOUT_MS: Final = 200
"""Shorter than anything that a batch waits for: behind a migration the duty gives up at once."""
STATEMENT_TIMEOUT_MS: Final = 5_000
_REFUSED: Final = "OF008"
_SQL = queries("retention")


@dataclass(frozen=True, slots=True)
class Slice:
    """What one call did; ``swept`` when it reached the end of its table."""

    deleted: int
    swept: bool


class RetentionStore:
    """The duty's calls, over an autocommit connection that belongs to the calling thread."""

    def __init__(self, connection: psycopg.Connection[Any], *, lease_name: str, token: int) -> None:
        assert connection.autocommit, "each slice is a transaction of its own"
        self._connection = connection
        self._held = {"name": lease_name, "token": token}

    def retire_markers(self, *, keep_days: int, pages_max: int) -> Slice:
        """Delete old markers from the next pages of the inbox.

        Raises:
            LeaseLost: another relay holds the lease; nothing was deleted.
            Unavailable: the database is away or busy, or refuses because its clock and ours differ.
        """
        return self._slice("markers", {"keep_days": keep_days, "pages_max": pages_max})

    def retire_outcomes(self, lane: int, *, keep_days: int, rows_max: int) -> Slice:
        """Delete the oldest outcomes of a lane; raises as ``retire_markers``."""
        return self._slice("outcomes", {"keep_days": keep_days, "lane": lane, "rows_max": rows_max})

    def retire_quarantine(self, *, keep_days: int, rows_max: int) -> Slice:
        """Delete records about which a person decided long ago; raises as ``retire_markers``."""
        return self._slice("quarantine", {"keep_days": keep_days, "rows_max": rows_max})

    def retire_reads(self, *, keep_days: int, rows_max: int) -> Slice:
        """Delete reads that ended long ago, unless a key waits for them; raises as ``retire_markers``."""
        return self._slice("reads", {"keep_days": keep_days, "rows_max": rows_max})

    def lanes(self) -> list[int]:
        """Return the lanes; raises ``Unavailable``."""
        with database_failures(), self._connection.cursor(row_factory=tuple_row) as cursor:
            return [row[0] for row in cursor.execute(_SQL["lanes"]).fetchall()]

    def book(self) -> list[Line]:
        """Return how far each table has come; raises ``Unavailable``."""
        with database_failures():
            return read_book(self._connection)

    def _slice(self, query: str, given: Mapping[str, object]) -> Slice:
        limits = {"lock_timeout": str(LOCK_TIMEOUT_MS), "statement_timeout": str(STATEMENT_TIMEOUT_MS)}
        asked = {**self._held, "asked_at": datetime.now(UTC), **given}
        with _refusals(), database_failures(), self._connection.transaction():
            self._connection.execute(_SQL["limits"], limits)
            with self._connection.cursor(row_factory=tuple_row) as cursor:
                row = cursor.execute(_SQL[query], asked).fetchone()
        assert row is not None, "the function always returns one row"
        return Slice(*row)


def read_book(connection: psycopg.Connection[Any]) -> list[Line]:
    """Return how far each table has come.

    Args:
        connection: any open one; a transaction is left open unless it is in autocommit mode.

    Raises:
        psycopg.Error: the database did not answer.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        return [Line(**row) for row in cursor.execute(_SQL["book"]).fetchall()]


def read_gone(connection: psycopg.Connection[Any]) -> Gone:
    """Return what is gone; arguments and errors as for ``read_book``."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(_SQL["gone"]).fetchone()
    assert row is not None, "an aggregate always has one row"
    return Gone(*row)


def read_known_from(connection: psycopg.Connection[Any]) -> datetime | None:
    """Return the time of receipt from which on every event's marker is there; None: all are; as for ``read_book``."""
    return refused_before(read_gone(connection).markers)


@contextmanager
def _refusals() -> Iterator[None]:
    """The functions' own refusal is no bug of this process: a clock is wrong somewhere, and may be set right."""
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate != _REFUSED:
            raise
        said = str(error).partition("\n")[0]
        raise Unavailable("retention_refused", f"the database deletes nothing: {said}") from error
