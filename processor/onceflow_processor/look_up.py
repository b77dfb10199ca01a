"""Asking the database what is taken, known or held, when the tail of a batch has found that memory was wrong.

Rule: nothing is written here; a probe is rolled back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from psycopg import Connection

from onceflow_processor.arrays import Texts, Uuids
from onceflow_processor.effects import Effects, FactKey
from onceflow_processor.facts import Facts
from onceflow_processor.operations.asked import AskedOperations
from onceflow_processor.operations.columns import request_columns
from onceflow_processor.operations.request import Asked
from onceflow_schemas.sql import queries

PATIENCE_MS = 250
"""How long a batch waits for one fact or operation of somebody's open transaction: those of other batches end at once, and
those of an application may stay open for minutes."""

PROBE_MS = 20
HELD_MAX = 50
"""Held facts and operations that are looked for at a time; the next time the batch is run, further ones are found."""

_SQL = queries("batch")
_REQUESTS = queries("operation_requests")

Wanted = TypeVar("Wanted")


def look_up_facts(connection: Connection[Any], facts: Facts, *, keys: Sequence[FactKey]) -> None:
    """Remember which of these facts are taken, or kept for one cause, by one query."""
    rows = connection.execute(
        _SQL["known_facts"], {"namespaces": [key[0] for key in keys], "keys": [key[1] for key in keys]}
    ).fetchall()
    facts.remember((namespace, key) for namespace, key, cause, _ in rows if cause is not None)
    facts.keep_for({(namespace, key): kept_for for namespace, key, _, kept_for in rows if kept_for is not None})


def look_up_operations(connection: Connection[Any], operations: AskedOperations, *, ids: Sequence[UUID]) -> None:
    """Remember which of these operations exist, by one query."""
    rows = connection.execute(_REQUESTS["known_operations"], {"ids": Uuids(ids)}).fetchall()
    operations.remember({known: bytes(args_sha256) for known, args_sha256 in rows})


class Held:
    """What somebody's open transaction holds of the facts and operations of a batch."""

    def __init__(self, facts: Sequence[FactKey], operations: Sequence[Asked]) -> None:
        self._facts = frozenset(facts)
        self._ids = frozenset(one.id for one in operations)

    def __bool__(self) -> bool:
        return bool(self._facts or self._ids)

    def reason(self, effects: Effects) -> str | None:
        """Say why an event that asked for this must wait; None when it need not.  Keys stay out: they may be personal."""
        for namespace, key in effects.facts:
            if (namespace, key) in self._facts:
                return f"a fact of {namespace} is held by a transaction that has not ended: look at pg_stat_activity"
        for one in effects.operations:
            if one.id in self._ids:
                return f"operation {one.id} is held by a transaction that has not ended: look at pg_stat_activity"
        return None


def find_held(connection: Connection[Any], *, facts: Sequence[FactKey], operations: Sequence[Asked]) -> Held:
    """Find out which of these facts and operations somebody's open transaction holds.

    Args:
        connection: idle; left so.
        facts, operations: what the batch has asked for.
    """
    with connection.transaction(force_rollback=True):
        connection.execute(_REQUESTS["patience"], {"lock_timeout": f"{PROBE_MS}ms"})
        return Held(
            _held_among(connection, facts, insert=_insert_facts), _held_among(connection, operations, insert=_insert)
        )


def _held_among(
    connection: Connection[Any],
    wanted: Sequence[Wanted],
    *,
    insert: Callable[[Connection[Any], Sequence[Wanted]], None],
) -> list[Wanted]:
    """Halve what has to wait until single ones are left; what can be inserted at once is held by nobody."""
    parts, held = [wanted], list[Wanted]()
    while parts and len(held) < HELD_MAX:
        part = parts.pop()
        if not part or not _waits(connection, part, insert=insert):
            continue
        if len(part) == 1:
            held.append(part[0])
            continue
        middle = len(part) // 2
        parts += [part[middle:], part[:middle]]
    return held


def _waits(
    connection: Connection[Any],
    part: Sequence[Wanted],
    *,
    insert: Callable[[Connection[Any], Sequence[Wanted]], None],
) -> bool:
    try:
        with connection.transaction(force_rollback=True):
            insert(connection, part)
    except psycopg.errors.LockNotAvailable:
        return True
    return False


def _insert_facts(connection: Connection[Any], keys: Sequence[FactKey]) -> None:
    connection.execute(
        _REQUESTS["probe_fact"],
        {"namespaces": Texts(namespace for namespace, _ in keys), "keys": Texts(key for _, key in keys)},
    )


def _insert(connection: Connection[Any], asked: Sequence[Asked]) -> None:
    connection.execute(_REQUESTS["request"], request_columns(asked))
