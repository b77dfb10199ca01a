"""Cursors that are set back: by what, how far, and that nobody undoes it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from onceflow_reconciler.cursors import AGAIN, NEVER, Cursor, note_losses

ACCOUNT = "acct_1"
DAY = timedelta(days=1)


@pytest.fixture
def connection(fresh_database: str) -> Iterator[Connection[Any]]:
    with psycopg.connect(fresh_database, autocommit=True) as opened:
        yield opened


def cursor(connection: Connection[Any]) -> Cursor:
    return Cursor(connection, account=ACCOUNT, mode="test", source=AGAIN)


def note(connection: Connection[Any], **topics: str) -> bool:
    return note_losses(connection, account=ACCOUNT, mode="test", topics=topics or {"events": "now"})


def decide(connection: Connection[Any], *, at: datetime) -> None:
    connection.execute(
        "INSERT INTO onceflow.audit (at, who, action, subject, before, after, reason)"
        " VALUES (%s, 'somebody', 'progress_set', 'events/0', '{}', '{}', 'a test')",
        [at],
    )


def progress(connection: Connection[Any], topic_id: str, partition: int, last: datetime | None, *, topic: str) -> None:
    """How far a partition was read: its last record is of this time."""
    fingerprint = None if last is None else f"4 {int(last.timestamp() * 1000)} abc"
    connection.execute(
        'INSERT INTO onceflow.progress (cluster_id, topic_id, "partition", topic, next_offset, fingerprint, epoch,'
        " owner, clean, batch_end) VALUES ('c', %s, %s, %s, 5, %s, 1, 'o', true, 5)",
        [topic_id, partition, topic, fingerprint],
    )


def test_a_decision_that_is_committed_behind_a_newer_one_is_noted_too(
    connection: Connection[Any], fresh_database: str
) -> None:
    now = datetime.now(UTC)
    assert not note(connection)
    with psycopg.connect(fresh_database) as late:
        decide(late, at=now - timedelta(minutes=1))
        decide(connection, at=now)
        assert note(connection)
        assert not note(connection), "once is enough"
        late.commit()
        assert note(connection)
        assert not note(connection)


def test_how_far_it_is_set_back_is_said_by_the_topics_of_now(connection: Connection[Any]) -> None:
    now = datetime.now(UTC)
    progress(connection, "now", 0, now - DAY, topic="events")
    progress(connection, "now", 1, None, topic="events")
    # Of a former topic those partitions count of which nothing was read in the new one.
    progress(connection, "former", 0, now - 20 * DAY, topic="events")
    progress(connection, "former", 1, now - 2 * DAY, topic="events")
    progress(connection, "gone", 0, now - 20 * DAY, topic="no input any more")
    decide(connection, at=now)
    assert note(connection)
    assert abs(cursor(connection).read(first=NEVER) - (now - 5 * DAY).timestamp()) <= 1


def test_a_set_back_that_was_noted_meanwhile_is_not_undone(connection: Connection[Any]) -> None:
    progress(connection, "now", 0, datetime.now(UTC), topic="events")
    decide(connection, at=datetime.now(UTC))
    note(connection)
    begun = cursor(connection).begin(first=NEVER)
    decide(connection, at=datetime.now(UTC))
    note(connection)
    begun.move(NEVER)
    assert cursor(connection).read(first=NEVER) < NEVER, "what the other noted is still to be read"
    cursor(connection).begin(first=NEVER).move(NEVER)
    assert cursor(connection).read(first=0) == NEVER
