"""Careful mode: records one by one, each try counted in its own commit before it.

Rule: a record that kills the process never reaches a counter in memory.  So the count is committed first, and the
record that was tried too often is quarantined without being tried again; the others pass.  A try that the process
outlived (the database went away, the partition was taken) is taken back: such a record has killed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSet, Sequence
from typing import Any

import psycopg
import structlog
from psycopg import Connection

from onceflow_processor.admission import Fault, Item
from onceflow_processor.batch_runner import BatchEnd, BatchRunner, ConnectionSpoiled
from onceflow_processor.position import Position
from onceflow_processor.records import Partition
from onceflow_producer.failpoint import hit
from onceflow_schemas.failure import LeaseLost, Unavailable
from onceflow_schemas.sql import queries

CAREFUL_TRIES_MAX = 3
_SQL = queries("progress")

Place = tuple[Partition, int]

log = structlog.get_logger("onceflow.processor")


def run_with_care(
    runner: BatchRunner,
    items: Sequence[Item],
    *,
    connection: Connection[Any],
    positions: Mapping[Partition, Position],
    end: BatchEnd,
    outlived: MutableSet[Place],
    stopping: Callable[[], bool],
) -> None:
    """Carry items through one by one; other arguments and errors as those of ``BatchRunner.run``.

    Args:
        outlived: records with a counted try that could not be taken back yet, for want of a connection; kept by the
            caller from one call to the next.
        stopping: True when the process is asked to stop.
    """
    for item in items:
        if stopping():
            return
        if not end.is_open(item):
            continue
        position = positions[item.record.partition]
        key = {
            "topic_id": position.topic_id,
            "partition": item.record.partition.number,
            "offset": item.record.offset,
        }
        place = (item.record.partition, item.record.offset)
        if place in outlived:
            _write(connection, "take_try_back", key=key)
            outlived.discard(place)
        tries = _count_try(connection, key)
        hit("careful.after_try")
        if tries > CAREFUL_TRIES_MAX and item.fault is None:
            detail = f"the process ended in {tries - 1} tries of this record alone"
            item.fault = Fault("process_killed", detail, blocks=True)
            log.error("record_kills_process", partition=str(item.record.partition), offset=item.record.offset)
        try:
            runner.run([item], positions={**positions, **end.positions}, end=end)
        except (Unavailable, LeaseLost, ConnectionSpoiled, psycopg.Error):
            outlived.add(place)
            raise
        if not end.is_open(item):
            _write(connection, "clear_suspect", key=key)


def _count_try(connection: Connection[Any], key: Mapping[str, Any]) -> int:
    with connection.transaction():
        row = connection.execute(_SQL["count_try"], key).fetchone()
    assert row is not None, "the statement returns its row"
    return int(row[0])


def _write(connection: Connection[Any], query: str, *, key: Mapping[str, Any]) -> None:
    with connection.transaction():
        connection.execute(_SQL[query], key)
