"""What a batch asks of table ``object_read``: what was read for its events, and what must be read for them.

Rule: the reads are asked for before the keys that wait for them are written: object_read comes before parked_key in the order
of locks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from psycopg import Connection

from onceflow_processor.admission import Item
from onceflow_processor.arrays import Texts
from onceflow_processor.claim import event_of
from onceflow_processor.event_reads import Reading, Readings
from onceflow_processor.kept_records import identity_columns
from onceflow_schemas.identity import Identity
from onceflow_schemas.object_reads import ReadKind, ReadNeed
from onceflow_schemas.sql import queries

_SQL = queries("object_reads")

Waits = Sequence[tuple[Item, ReadNeed]]


def read_results(connection: Connection[Any], items: Sequence[Item]) -> dict[Identity, Readings]:
    """Return what was read for events, as far as it may be used for them."""
    return _results(connection, items, query="found")


def recorded_results(connection: Connection[Any], items: Sequence[Item]) -> dict[Identity, Readings]:
    """Return what was read for events that were processed, unless a later read has taken its place."""
    return _results(connection, items, query="found_then")


def _results(connection: Connection[Any], items: Sequence[Item], *, query: str) -> dict[Identity, Readings]:
    events = [event_of(item) for item in items]
    given = {
        **identity_columns(event.identity for event in events),
        "object_ids": Texts(event.object_id for event in events),
    }
    found: dict[Identity, dict[tuple[ReadKind, str | None], Reading]] = defaultdict(dict)
    for account, mode, event_id, kind, version, result, body, stripe_at, detail in connection.execute(
        _SQL[query], given
    ):
        reading = Reading(result, None if body is None else bytes(body), stripe_at, detail)
        found[Identity(account, mode, event_id)][ReadKind(kind), version or None] = reading
    return dict(found)


def ask_for_reads(connection: Connection[Any], waits: Waits) -> None:
    """Ask for what events need; called in the tail's pipeline, before the keys are written."""
    needs = {replace(need, path=""): need for _, need in waits}
    given = {
        "accounts": Texts(need.account for need in needs.values()),
        "modes": Texts(need.mode for need in needs.values()),
        "kinds": Texts(need.kind.value for need in needs.values()),
        "object_ids": Texts(need.object_id for need in needs.values()),
        "paths": Texts(need.path for need in needs.values()),
        "api_versions": Texts(need.api_version for need in needs.values()),
    }
    connection.execute(_SQL["ask"], given)


def let_keys_wait(connection: Connection[Any], waits: Waits) -> None:
    """Let the keys wait for their reads; called in the tail's pipeline, after the keys are written."""
    given = {
        **identity_columns(event_of(item).identity for item, _ in waits),
        "order_keys": Texts(item.order_key for item, _ in waits),
        "kinds": Texts(need.kind.value for _, need in waits),
        "object_ids": Texts(need.object_id for _, need in waits),
        "api_versions": Texts(need.api_version for _, need in waits),
    }
    connection.execute(_SQL["wait"], given)
