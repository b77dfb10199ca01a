"""From what webhooks said to looks.

Rule: a hint is taken in the transaction that makes its operation due for a look, or that finds it is no news.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from psycopg import Connection
from psycopg.rows import dict_row

from onceflow_processor.arrays import Texts, Uuids
from onceflow_processor.operations.hint_news import Word, is_news, word_from
from onceflow_schemas.sql import queries

HINTS_MAX = 500
STRANGER_MINUTES = 10
"""A hint about an operation that is not here waits so long: its handler may be about to ask for it again."""

_SQL = queries("operation_work")


def take_hints(connection: Connection[Any], *, set_limits: Callable[[Connection[Any]], None]) -> int:
    """Turn open hints into looks, in one transaction; returns how many operations are to be looked at.

    Args:
        connection: idle; left so.
        set_limits: sets the time limits of a transaction.

    Raises:
        psycopg.Error: the database did not answer.
    """
    with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
        set_limits(connection)
        cursor.execute(_SQL["hints_open"], {"count": HINTS_MAX, "stranger_minutes": STRANGER_MINUTES})
        words = [word_from(row) for row in cursor.fetchall()]
        if not words:
            return 0
        looks: dict[UUID, str] = {}
        for word in words:
            if is_news(word):
                looks.setdefault(word.operation_id, word.object_id)
        asked = set()
        if looks:
            given = {"ids": Uuids(looks), "look_ats": Texts(looks.values())}
            asked = {row["id"] for row in cursor.execute(_SQL["look_now"], given).fetchall()}
        # One that was leased meanwhile keeps its hints; so does news of a second object, which is looked at after the first.
        met = {(operation_id, looks[operation_id]) for operation_id in asked}
        taken = [word for word in words if word.operation_id not in looks or (word.operation_id, word.object_id) in met]
        cursor.execute(_SQL["hints_take"], _taken(taken))
        return len(asked)


def _taken(words: Sequence[Word]) -> dict[str, Any]:
    return {"operation_ids": Uuids(word.operation_id for word in words), "events": Texts(word.event for word in words)}
