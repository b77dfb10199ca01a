"""The tail of a batch: one pipeline from the facts to COMMIT, without a fetch or sync inside.

Rule: the order is object guards, facts, operations, states, parking, quarantine, progress, guard, then lanes and outcomes in
the last statement before COMMIT.  Checks raise on the server.  The COMMIT tag is read afterwards, because a failed transaction may answer
COMMIT with ROLLBACK and no error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg import Connection, Cursor

from onceflow_processor.admission import Fault, Item
from onceflow_processor.arrays import Bigints, Blobs, Integers, Texts, Uuids
from onceflow_processor.claim import event_of
from onceflow_processor.effects import FactKey, Outcome
from onceflow_processor.guards import GuardKey
from onceflow_processor.hints import Hint
from onceflow_processor.ignoring import write_reasons
from onceflow_processor.kept_records import fault_columns, identity_columns, kept_columns
from onceflow_processor.look_up import PATIENCE_MS
from onceflow_processor.object_guard import write_guards, write_stale
from onceflow_processor.operations.columns import hint_columns, request_columns
from onceflow_processor.operations.request import Asked
from onceflow_processor.parking import Redriven, Waiting
from onceflow_processor.parking_tail import write_parking
from onceflow_processor.position import Position
from onceflow_processor.records import Partition
from onceflow_producer.failpoint import hit
from onceflow_schemas.fingerprint import record_fingerprint
from onceflow_schemas.identity import Identity, ce_id
from onceflow_schemas.object_order import ObjectState
from onceflow_schemas.sql import queries
from onceflow_schemas.told_facts import NO_HEADERS, headers_by_cause

_SQL = queries("batch")
_REQUESTS = queries("operation_requests")


class NotCommitted(Exception):
    """COMMIT was answered with ROLLBACK: nothing of the batch is there."""


@dataclass(frozen=True, slots=True)
class Tail:
    """Everything that the tail writes; without ``moves`` no position is moved and no epoch checked; ``note`` writes in their place.

    ``failed`` are the events whose markers get another state than was expected, and ``line`` those that wait; ``left`` are those
    of a redriven key that wait no more.
    """

    guard: int
    cluster_id: str
    facts: dict[FactKey, str]
    failed: Sequence[tuple[Item, str]]
    quarantine: Sequence[tuple[Item, Fault]]
    moves: Sequence[tuple[Partition, Position, Item]]
    topic_ids: dict[str, str]
    outcomes: Sequence[Outcome]
    line: Sequence[Waiting] = ()
    redriven: Redriven | None = None
    left: Sequence[Identity] = ()
    operations: Sequence[Asked] = ()
    hints: Sequence[Hint] = ()
    again: Sequence[tuple[FactKey, str]] = ()
    guards: Mapping[GuardKey, ObjectState] = field(default_factory=dict)
    stale: Mapping[Identity, bool] = field(default_factory=dict)
    ignored: Mapping[Identity, str] = field(default_factory=dict)
    note: Callable[[], None] | None = None


def write_tail(connection: Connection[Any], tail: Tail) -> None:
    """Write and commit.

    Raises:
        psycopg.Error: the first error of the server; nothing is committed unless the connection itself was lost.
        NotCommitted: COMMIT was answered with ROLLBACK.
    """
    with connection.pipeline():
        if tail.guards:
            write_guards(connection, tail.guards)
        if tail.facts or tail.operations:
            write_claims(connection, facts=tail.facts, operations=tail.operations)
        if tail.again:
            write_claims_again(connection, tail.again)
        if tail.hints:
            connection.execute(_REQUESTS["hints"], hint_columns(tail.hints))
        _write_ends(connection, tail)
        _write_position(connection, tail)
        connection.execute(_SQL["tail_guard"], {"guard": tail.guard})
        hit("processor.before_outcomes")
        if tail.outcomes:
            connection.execute(_SQL["tail_outcomes"], outcome_columns(tail.outcomes, tail.facts))
        hit("processor.before_commit")
        commit = connection.execute(_SQL["commit"])
    check_committed(commit)


def _write_ends(connection: Connection[Any], tail: Tail) -> None:
    """Write how events ended that did not simply go well."""
    if tail.failed:
        connection.execute(_SQL["tail_states"], _states(tail.failed))
    if tail.stale:
        write_stale(connection, tail.stale)
    if tail.ignored:
        write_reasons(connection, tail.ignored)
    if tail.line or tail.redriven is not None:
        write_parking(connection, tail.line, topic_ids=tail.topic_ids, redriven=tail.redriven, left=tail.left)
    if tail.quarantine:
        connection.execute(_SQL["tail_quarantine"], _quarantine(tail))


def _write_position(connection: Connection[Any], tail: Tail) -> None:
    if tail.moves:
        connection.execute(_SQL["tail_progress"], {"cluster_id": tail.cluster_id, **_moves(tail)})
    if tail.note is not None:
        tail.note()


def check_committed(commit: Cursor[Any]) -> None:
    """Read the tag of a COMMIT whose pipeline has ended.

    Raises:
        NotCommitted: it was answered with ROLLBACK.
    """
    if commit.statusmessage != "COMMIT":
        raise NotCommitted(f"COMMIT was answered with {commit.statusmessage}")


def write_claims(connection: Connection[Any], *, facts: dict[FactKey, str], operations: Sequence[Asked]) -> None:
    """Write what a transaction outside ours may hold, with little patience, so that it holds up one event and no batch.

    Args:
        connection: in a pipeline.
        facts: with their causes, in their order.
        operations: in the order of asking.
    """
    connection.execute(_REQUESTS["patience"], {"lock_timeout": f"{PATIENCE_MS}ms"})
    if facts:
        connection.execute(_SQL["tail_facts"], _facts(facts))
    if operations:
        columns = request_columns(operations)
        connection.execute(_REQUESTS["request"], columns)
        connection.execute(_REQUESTS["request_check"], columns)
    connection.execute(_REQUESTS["patience_over"])


def write_claims_again(connection: Connection[Any], again: Iterable[tuple[FactKey, str]]) -> None:
    """Write who claimed facts that had been claimed before; called in a pipeline, after the facts."""
    rows = sorted(set(again))
    connection.execute(
        _SQL["tail_fact_claims"],
        {
            "namespaces": Texts(namespace for (namespace, _), _ in rows),
            "keys": Texts(key for (_, key), _ in rows),
            "causes": Texts(cause for _, cause in rows),
        },
    )


def _facts(facts: dict[FactKey, str]) -> dict[str, Any]:
    return {
        "namespaces": Texts(namespace for namespace, _ in facts),
        "keys": Texts(key for _, key in facts),
        "causes": Texts(facts.values()),
        "expected": len(facts),
    }


def _states(moved: Sequence[tuple[Item, str]]) -> dict[str, Any]:
    # One order of locking in all batches, whatever the order of the records was.
    rows = sorted((event_of(item).identity, state) for item, state in moved)
    return {**identity_columns(identity for identity, _ in rows), "states": Texts(state for _, state in rows)}


def _moves(tail: Tail) -> dict[str, Any]:
    moves = sorted(tail.moves, key=lambda move: move[0])
    return {
        "topic_ids": Texts(position.topic_id for _, position, _ in moves),
        "partitions": Integers(partition.number for partition, _, _ in moves),
        "epochs": Bigints(position.epoch for _, position, _ in moves),
        "from_offsets": Bigints(position.next_offset for _, position, _ in moves),
        "next_offsets": Bigints(last.record.offset + 1 for _, _, last in moves),
        "fingerprints": Texts(fingerprint_of(last) for _, _, last in moves),
        "expected": len(moves),
    }


def fingerprint_of(item: Item) -> str:
    """Return the fingerprint of an item's record."""
    record = item.record
    return record_fingerprint(
        offset=record.offset, timestamp_ms=record.timestamp_ms, key=record.key, value=record.value
    )


def outcome_columns(outcomes: Sequence[Outcome], facts: Mapping[FactKey, str]) -> dict[str, Any]:
    """Return the parameters of the statement ``tail_outcomes``.

    Args:
        outcomes: in the order of their sequences.
        facts: what their transaction claims, with its causes: each outcome tells those of its own cause.
    """
    headers = headers_by_cause(facts)
    return {
        "lanes": Integers(outcome.lane for outcome in outcomes),
        "outcome_ids": Uuids(outcome.outcome_id for outcome in outcomes),
        "revisions": Integers(outcome.revision for outcome in outcomes),
        "ce_ids": Uuids(ce_id(outcome.outcome_id, outcome.revision) for outcome in outcomes),
        "types": Texts(outcome.type for outcome in outcomes),
        "keys": Texts(outcome.key for outcome in outcomes),
        "bodies": Blobs(outcome.value for outcome in outcomes),
        "headers": Texts(headers.get(outcome.cause, NO_HEADERS) for outcome in outcomes),
        "causes": Texts(outcome.cause for outcome in outcomes),
        "expected": len(outcomes),
    }


def _quarantine(tail: Tail) -> dict[str, Any]:
    items, faults = [item for item, _ in tail.quarantine], [fault for _, fault in tail.quarantine]
    blocking = {id(waiting.item) for waiting in tail.line}
    return {
        **kept_columns(items, topic_ids=tail.topic_ids),
        **fault_columns([*zip(items, faults, strict=True)]),
        "order_keys": Texts(item.order_key if id(item) in blocking else None for item in items),
        "attempts": Integers(item.attempts for item in items),
    }
