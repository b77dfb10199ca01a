"""The tables of one proof: temporary ones, and the ledger's.

Rule: all of it happens in one transaction of one connection; what is read beside it is only a reason to look less closely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, Final

from psycopg import Connection, Copy

from onceflow_reconciler.verify.folding import BLOCK_PLACES
from onceflow_reconciler.verify.question import Question
from onceflow_schemas.sql import queries

_SQL = {
    **queries("verify_tables"), **queries("verify"), **queries("verify_blocks"), **queries("verify_bounds"),
    **queries("verify_hours"), **queries("verify_explained"), **queries("verify_rows"),
}  # fmt: skip
_MADE: Final = (
    "seen_event", "seen_outcome", "listed_event", "listed_span", "passed", "lane_before", "proved_event", "proved_outcome",
    "unlike", "unexplained", "listed_object",
)  # fmt: skip


class Tables:
    """Runs the queries of ``verify_tables.sql``, ``verify.sql`` and those beside it for one question.

    Args:
        connection: in a transaction that the caller ends.
        question: what is asked.
        tell: called with how many records were read.
    """

    def __init__(self, connection: Connection[Any], question: Question, *, tell: Callable[[int], object]) -> None:
        self._connection = connection
        self._tell = tell
        self._read = 0
        self._window = {
            "since": question.since or datetime.min.replace(tzinfo=UTC),
            "until": question.until or datetime.max.replace(tzinfo=UTC),
            "by_arrival": question.by_arrival,
            "account": question.account,
            "mode": question.rules.mode,
            "places": BLOCK_PLACES,
        }

    def make(self) -> None:
        """Make the temporary ones."""
        self.run("begin")
        for table in _MADE:
            self.run(f"make_{table}")

    def run(self, query: str, **given: object) -> None:
        """Run a query whose rows nobody wants."""
        self._connection.execute(_SQL[query], {**self._window, **given})

    def rows(self, query: str, **given: object) -> list[Any]:
        """Return a query's rows."""
        return self._connection.execute(_SQL[query], {**self._window, **given}).fetchall()

    def pages(self, query: str, *, rows_max: int) -> Iterator[list[Any]]:
        """Yield a query's rows, at most so many at once."""
        with self._connection.cursor(name=query) as cursor:
            cursor.execute(_SQL[query], self._window)
            while page := cursor.fetchmany(rows_max):
                yield page

    def copy(self, query: str) -> AbstractContextManager[Copy]:
        """Begin to copy."""
        return self._connection.cursor().copy(_SQL[query])

    def unexplained(self, kind: str, subject: str, detail: str) -> None:
        """Note a difference."""
        self.run("add_unexplained", kind=kind, subject=subject, detail=detail)

    def count(self, records: int) -> None:
        """Tell that more records were read."""
        self._read += records
        self._tell(self._read)


class RowBlocks:
    """Folds the ledger's rows into blocks, beside the transaction of the proof.

    Args:
        connection: another one, in autocommit.
    """

    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection

    def rows(self, query: str, **given: object) -> list[Any]:
        """Return a query's rows; what is set for it holds for its transaction only, as a pooler wants it."""
        with self._connection.transaction():
            self._connection.execute(_SQL["begin_blocks"])
            return self._connection.execute(_SQL[query], {**given, "places": BLOCK_PLACES}).fetchall()

    def cancel(self) -> None:
        """End what runs."""
        self._connection.cancel_safe()
