"""The rows of ``object_guard``: locked before the handlers of a batch run, written by its tail.

Rule: only events whose type has a handler with an order come here, and a batch without any sends no statement.  Objects are
locked sorted, after the markers and before the handlers' own rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from psycopg import Connection

from onceflow_processor.admission import Item
from onceflow_processor.arrays import Blobs, Texts
from onceflow_processor.event import Event
from onceflow_processor.guards import GuardKey, Guards
from onceflow_processor.handlers import Handlers
from onceflow_schemas.identity import Identity
from onceflow_schemas.object_order import ObjectState, Rank, read_state
from onceflow_schemas.sql import queries

_SQL = queries("object_guard")


def lock_guards(
    connection: Connection[Any], work: Sequence[tuple[Item, Event]], *, guards: Guards, handlers: Handlers
) -> None:
    """Lock the guards of a batch's objects and read what has been applied of them.

    Args:
        connection: in the batch's transaction, with its markers claimed.
        work: the events that have handlers.
        guards: takes what was read.
        handlers: tells which of them ask for an order.
    """
    offered = dict(offered_states(work, handlers))
    if not offered:
        guards.end()
        return
    objects = _objects(sorted({key for key, _ in offered.values()}))
    with connection.pipeline():
        connection.execute(_SQL["insert_missing"], objects)
        cursor = connection.execute(_SQL["lock"], objects)
    guards.begin({(row[0], row[1], row[2]): _state(row[3:]) for row in cursor.fetchall()}, offered)


def write_guards(connection: Connection[Any], moved: Mapping[GuardKey, ObjectState]) -> None:
    """Write what the batch has applied; called in the tail's pipeline."""
    states = list(moved.values())
    columns = {
        "kinds": Texts(state.kind for state in states),
        "createds": Texts(state.created.isoformat() for state in states),
        "ranks": Texts("{" + ",".join(map(str, state.rank)) + "}" for state in states),
        "tombstones": Texts(_flag(is_set=state.tombstone) for state in states),
        "digests": Blobs(state.digest for state in states),
        "event_ids": Texts(state.event_id for state in states),
        "types": Texts(state.type for state in states),
        "statuses": Texts(state.status for state in states),
    }
    connection.execute(_SQL["tail_guards"], {**_objects(moved), **columns})


def write_stale(connection: Connection[Any], told: Mapping[Identity, bool]) -> None:
    """Note at the markers which events told an older state (True) or the applied one again; called in the tail's pipeline."""
    connection.execute(
        _SQL["tail_stale"],
        {
            "accounts": Texts(identity.account for identity in told),
            "modes": Texts(identity.mode for identity in told),
            "event_ids": Texts(identity.event_id for identity in told),
            "is_stales": Texts(_flag(is_set=is_stale) for is_stale in told.values()),
        },
    )


def offered_states(
    work: Sequence[tuple[Item, Event]], handlers: Handlers
) -> Iterator[tuple[Identity, tuple[GuardKey, ObjectState]]]:
    """Yield what each event tells of its object, where a handler of its type asks for an order."""
    for item, event in work:
        if item.event is None or not item.event.object_id or not handlers.asks_for_order(event.type):
            continue
        state = read_state(event.object, created=event.created, event_id=event.id, event_type=event.type)
        yield event.identity, ((event.account, event.mode, item.event.object_id), state)


def _objects(keys: Iterable[GuardKey]) -> dict[str, Any]:
    keys = list(keys)
    return {
        "accounts": Texts(account for account, _, _ in keys),
        "modes": Texts(mode for _, mode, _ in keys),
        "object_ids": Texts(object_id for _, _, object_id in keys),
    }


def _state(columns: Sequence[Any]) -> ObjectState | None:
    kind, created, rank, tombstone, digest, event_id, event_type, status = columns
    if created is None:
        return None
    return ObjectState(
        kind=kind,
        created=datetime.fromtimestamp(created, UTC),
        rank=Rank(*rank),
        tombstone=tombstone,
        digest=bytes(digest),
        event_id=event_id,
        type=event_type,
        status=status,
    )


def _flag(*, is_set: bool) -> str:
    return "true" if is_set else "false"
