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
from onceflow_producer.failpoint import hit
from onceflow_schemas.sql import queries

_SQL = queries("parking")


def write_parking(
    connection: Connection[Any],
    line: Sequence[Waiting],
    *,
    topic_ids: Mapping[str, str],
    redriven: Redriven | None,
) -> None:
    """Write who waits.

    Args:
        connection: in the pipeline of the tail.
        line: the events that wait, in the order of the batch.
        topic_ids: topic id by topic.
        redriven: the key whose head was tried; the line is the head itself then, or empty when it need not wait.
    """
    if redriven is None:
        connection.execute(_SQL["park_keys"], _keys(line))
        behind = [one for one in line if one.wait_seconds is not None]
        if behind:
            connection.execute(_SQL["park"], _events(behind, topic_ids))
    else:
        _end_redrive(connection, line, redriven)


def _end_redrive(connection: Connection[Any], line: Sequence[Waiting], redriven: Redriven) -> None:
    key = {"order_key": redriven.order_key, "fence": redriven.fence}
    head = redriven.identity._asdict()
    connection.execute(_SQL["redrive_lock"], key)
    hit("redrive.after_lock")
    if not line:
        connection.execute(_SQL["leave"], head)
        connection.execute(_SQL["key_next"], key)
        connection.execute(_SQL["key_done"], key)
        return
    [waiting] = line
    if waiting.wait_seconds is None or waiting.fault is None:
        connection.execute(_SQL["leave"], head)
    else:
        again = _failure(waiting, waiting.fault)
        connection.execute(_SQL["park_again"], {**head, **again, "wait_seconds": waiting.wait_seconds})
    connection.execute(_SQL["key_waits"], {**head, **key, "wait_seconds": waiting.wait_seconds})


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
