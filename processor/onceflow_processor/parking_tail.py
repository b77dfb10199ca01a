"""The part of a tail that parks: keys that wait from now on, events behind them, and the end of a redrive.

Rule: the key's row is locked before an event is added behind it or taken away, by batches and redrives alike, so that none is
left behind; a redrive whose fence is old writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import Connection

from onceflow_processor.admission import Fault
from onceflow_processor.arrays import Texts
from onceflow_processor.claim import event_of
from onceflow_processor.kept_records import fault_columns, identity_columns, kept_columns
from onceflow_processor.parking import Redriven, Waiting
from onceflow_processor.reads.asking import ask_for_reads, let_keys_wait
from onceflow_producer.failpoint import hit
from onceflow_schemas.identity import Identity
from onceflow_schemas.sql import queries

_SQL = queries("parking")


def write_parking(
    connection: Connection[Any],
    line: Sequence[Waiting],
    *,
    topic_ids: Mapping[str, str],
    redriven: Redriven | None,
    left: Sequence[Identity] = (),
) -> None:
    """Write who waits.

    Args:
        connection: in the pipeline of the tail.
        line: the events that wait, in the order of the batch.
        topic_ids: topic id by topic.
        redriven: the key whose head was tried; the line begins with the event that the key waits for then, or is empty.
        left: events of that key that wait no more.
    """
    waits = [(one.item, one.fault.read) for one in line if one.fault is not None and one.fault.read is not None]
    if waits:
        ask_for_reads(connection, waits)
    if redriven is None:
        connection.execute(_SQL["park_keys"], _keys(line))
        behind = [one for one in line if one.wait_seconds is not None]
        if behind:
            connection.execute(_SQL["park"], _events(behind, topic_ids))
    else:
        _end_redrive(connection, line, redriven, left=left)
    if waits:
        let_keys_wait(connection, waits)


def _end_redrive(
    connection: Connection[Any], line: Sequence[Waiting], redriven: Redriven, *, left: Sequence[Identity]
) -> None:
    key = {"order_key": redriven.order_key, "fence": redriven.fence}
    connection.execute(_SQL["redrive_lock"], key)
    hit("redrive.after_lock")
    connection.execute(_SQL["leave"], identity_columns(left))
    if not line:
        connection.execute(_SQL["key_next"], {**key, **identity_columns(redriven.heads)})
        connection.execute(_SQL["key_done"], key)
        return
    waiting, head = line[0], event_of(line[0].item).identity
    assert waiting.fault is not None, "nothing stands behind an event that did not fail"
    behind = [identity for identity in redriven.heads if identity != head]
    if behind:
        connection.execute(_SQL["untried"], identity_columns(behind))
    if waiting.wait_seconds is not None:
        again = _failure(waiting, waiting.fault)
        connection.execute(_SQL["park_again"], {**head._asdict(), **again, "wait_seconds": waiting.wait_seconds})
    connection.execute(_SQL["key_waits"], {**head._asdict(), **key, "wait_seconds": waiting.wait_seconds})


def _keys(line: Sequence[Waiting]) -> dict[str, Any]:
    """One row per key: the first event of it in the line is its head."""
    heads: dict[str, Waiting] = {}
    for waiting in line:
        heads.setdefault(waiting.item.order_key, waiting)
    return {
        "order_keys": Texts(heads),
        **identity_columns(event_of(waiting.item).identity for waiting in heads.values()),
        "waits_seconds": [waiting.wait_seconds for waiting in heads.values()],
    }


def _events(behind: Sequence[Waiting], topic_ids: Mapping[str, str]) -> dict[str, Any]:
    return {
        **kept_columns([waiting.item for waiting in behind], topic_ids=topic_ids),
        **fault_columns([(waiting.item, waiting.fault) for waiting in behind]),
        "order_keys": Texts(waiting.item.order_key for waiting in behind),
        "waits_seconds": [waiting.wait_seconds for waiting in behind],
    }


def _failure(waiting: Waiting, fault: Fault) -> dict[str, str | None]:
    columns = fault_columns([(waiting.item, fault)])
    return {
        "code": columns["codes"][0],
        "detail": columns["details"][0],
        "handler": columns["handlers"][0],
        "traceback": columns["tracebacks"][0],
        "failure_group": columns["failure_groups"][0],
    }
