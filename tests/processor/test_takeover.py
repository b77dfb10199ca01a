"""A take-over compares the position with a look at the log that is older than itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from onceflow_processor.handoff import Assigned
from onceflow_processor.position import Begin, LogBounds, Stop
from onceflow_processor.records import Partition
from onceflow_processor.takeover import Takeover

PARTITION = Partition("events", 0)


@pytest.fixture
def connection(fresh_database: str) -> Iterator[Connection[Any]]:
    with psycopg.connect(fresh_database) as made:
        yield made


def looked(high: int) -> Assigned:
    return Assigned(PARTITION, 1, "topic-1", LogBounds(0, high), 0)


def member(connection: Connection[Any], name: str) -> Takeover:
    return Takeover(connection, cluster_id="cluster-1", owner=name)


def go_on(connection: Connection[Any], next_offset: int) -> None:
    with connection.transaction():
        connection.execute("UPDATE onceflow.progress SET next_offset = %s", [next_offset])


def stopped(connection: Connection[Any]) -> str | None:
    with connection.transaction():
        row = connection.execute("SELECT stopped FROM onceflow.progress").fetchone()
    assert row is not None
    found: str | None = row[0]
    return found


def test_former_member_went_on_after_the_look(connection: Connection[Any]) -> None:
    """The log had 10 records when it was looked at; the former owner did an eleventh before it was fenced."""
    member(connection, "former").take(looked(10))
    go_on(connection, 11)
    ours = member(connection, "ours")
    first = ours.take(looked(10))
    assert first.in_doubt
    assert first.position is not None
    assert first.position.next_offset == 11
    assert stopped(connection) is None
    second = ours.take(looked(12), seen_offset=11)
    assert not second.in_doubt
    assert isinstance(second.verdict, Begin)


def test_lost_tail_is_believed_at_the_second_look(connection: Connection[Any]) -> None:
    member(connection, "former").take(looked(10))
    go_on(connection, 11)
    ours = member(connection, "ours")
    assert ours.take(looked(10)).in_doubt
    second = ours.take(looked(10), seen_offset=11)
    assert not second.in_doubt
    assert isinstance(second.verdict, Stop)
    assert (second.verdict.code, stopped(connection)) == ("tail_lost", "tail_lost")


def test_position_that_moved_between_both_looks_is_looked_at_once_more(connection: Connection[Any]) -> None:
    member(connection, "former").take(looked(10))
    go_on(connection, 11)
    ours = member(connection, "ours")
    assert ours.take(looked(10)).in_doubt
    member(connection, "former").take(looked(11))
    go_on(connection, 12)
    assert ours.take(looked(11), seen_offset=11).in_doubt
    assert isinstance(ours.take(looked(12), seen_offset=12).verdict, Begin)


def test_other_stops_are_believed_at_once(connection: Connection[Any]) -> None:
    member(connection, "former").take(looked(10))
    go_on(connection, 5)
    taken = member(connection, "ours").take(Assigned(PARTITION, 1, "topic-1", LogBounds(7, 10), 0))
    assert not taken.in_doubt
    assert stopped(connection) == "log_start_passed"


def test_a_position_of_another_topic_is_told_with_its_id_as_kafka_prints_it(connection: Connection[Any]) -> None:
    member(connection, "former").take(looked(10))
    with connection.transaction():
        connection.execute("UPDATE onceflow.progress SET topic_id = 'an+other'")
    taken = member(connection, "ours").take(looked(10))
    assert taken.verdict == Stop("topic_changed", "the position of this partition belongs to topic id an-other")
