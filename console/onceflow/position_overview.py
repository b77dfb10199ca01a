"""Reads positions and logs side by side for ``onceflow progress show``.

Rule: the database is read before Kafka, so a partition that moves on meanwhile never looks as if its log had lost
something; without Kafka the rows are shown all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
from psycopg.rows import dict_row

from onceflow_processor.kafka_client import admin_client, cluster_id, describe_topics
from onceflow_processor.log_reader import LogReader
from onceflow_processor.position import LogBounds
from onceflow_processor.position_report import PositionRow, Reported, report
from onceflow_processor.records import Partition
from onceflow_schemas.failure import Failure
from onceflow_schemas.sql import queries

LOOK_SECONDS_MAX = 10.0
MARKS_MAX = 1_000
"""So many offsets at a log's end are looked at for a record: transactions leave marks there, which nobody reads."""

_Shapes = dict[str, tuple[str, int]]
"""Topic -> its id and its number of partitions."""


def read_positions(
    connection: psycopg.Connection[Any], *, kafka: Mapping[str, object], group: str, topics: Sequence[str]
) -> tuple[list[Reported], Failure | None]:
    """Return a row for each position and each partition without one, and the failure when Kafka could not be asked.

    Args:
        connection: idle; left idle.
        kafka: librdkafka properties.
        group: the processors' group, which is not joined.
        topics: the event topics of the settings.
    """
    with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
        stored = cursor.execute(queries("operating")["positions"]).fetchall()
    try:
        cluster, shapes, bounds, read_out = _ask_kafka(kafka, group=group, topics=topics, stored=stored)
    except Failure as failure:
        return [report(_row(one), None, current_id=None) for one in stored], failure
    rows = [
        replace(one, read_out=one.state != "former" and Partition(one.row.topic, one.row.partition) in read_out)
        for one in _reported(stored, cluster=cluster, shapes=shapes, bounds=bounds)
    ]
    rows.sort(key=lambda one: (one.row.topic, one.row.partition, one.state == "former"))
    return rows, None


def _ask_kafka(
    kafka: Mapping[str, object], *, group: str, topics: Sequence[str], stored: Sequence[Mapping[str, Any]]
) -> tuple[str, _Shapes, dict[Partition, LogBounds], set[Partition]]:
    admin = admin_client(kafka)
    cluster = cluster_id(admin)
    shapes = {name: (one.topic_id, one.partitions) for name, one in describe_topics(admin, topics).items()}
    bounds = {}
    with LogReader(kafka, group=group, deadline_seconds=LOOK_SECONDS_MAX) as reader:
        for topic, (_, partitions) in shapes.items():
            for number in range(partitions):
                partition = Partition(topic, number)
                bounds[partition] = reader.bounds(partition)
        ids = {topic: topic_id for topic, (topic_id, _) in shapes.items()}
        own = [one for one in stored if (one["cluster_id"], one["topic_id"]) == (cluster, ids.get(one["topic"]))]
        read_out = {
            partition
            for one in own
            if (partition := Partition(one["topic"], one["partition"])) in bounds
            and _is_read_out(reader, partition, one["next_offset"], bounds[partition])
        }
    return cluster, shapes, bounds, read_out


def _is_read_out(reader: LogReader, partition: Partition, next_offset: int, bounds: LogBounds) -> bool:
    if not 0 < bounds.high - next_offset <= MARKS_MAX or next_offset < bounds.low:
        return False
    with closing(reader.records(partition, next_offset, end=bounds.high)) as records:
        return next(records, None) is None


def _reported(
    stored: Sequence[Mapping[str, Any]], *, cluster: str, shapes: _Shapes, bounds: Mapping[Partition, LogBounds]
) -> Iterator[Reported]:
    own, others = set[Partition](), set[Partition]()
    for one in stored:
        partition = Partition(one["topic"], one["partition"])
        shape = shapes.get(partition.topic)
        if shape is None:
            # No topic of the settings: its log was not asked for.
            yield report(_row(one), None, current_id=None)
            continue
        is_own = (one["cluster_id"], one["topic_id"]) == (cluster, shape[0])
        (own if is_own else others).add(partition)
        # Ids are unique over clusters too; another cluster's row is told apart by an id that no topic here has.
        yield report(_row(one), bounds.get(partition) if is_own else None, current_id=one["topic_id"] if is_own else "")
    for topic, (current_id, partitions) in shapes.items():
        for number in range(partitions):
            partition = Partition(topic, number)
            if partition not in own:
                missing = PositionRow(topic, current_id, number)
                yield report(missing, bounds[partition], current_id=current_id, has_former=partition in others)


def _row(one: Mapping[str, Any]) -> PositionRow:
    names = (
        "topic",
        "topic_id",
        "partition",
        "next_offset",
        "fingerprint",
        "epoch",
        "owner",
        "clean",
        "stopped",
        "waiting",
    )
    return PositionRow(**{name: one[name] for name in names})
