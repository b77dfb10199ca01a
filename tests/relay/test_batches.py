"""Dense batches, their ends, and what was read ahead."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from onceflow_processor.relay.batches import Batch, BatchReader, Question
from onceflow_processor.relay.cursor import Disagrees
from onceflow_processor.relay.lane_store import LaneStore, connect
from tests.relay.lanes import add_rows


@pytest.fixture
def database(fresh_database: str) -> str:
    with psycopg.connect(fresh_database) as connection:
        connection.execute("INSERT INTO onceflow.lane (lane, topic_id) VALUES (0, 'T')")
        add_rows(connection, 0, 10)
    return fresh_database


@pytest.fixture
def reader(database: str) -> Iterator[BatchReader]:
    with connect(database, role="onceflow-relay", prepared=True) as connection:
        yield BatchReader(LaneStore(connection, lease_name="l"), deployment="d")


def change(database: str, text: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute(text.encode())


def asked(after_seq: int, rows_max: int = 100) -> Question:
    return Question(0, after_seq, rows_max, 10**6)


def seqs(batch: Batch) -> list[int]:
    return [record.seq for record in batch.records]


def test_a_batch_begins_where_it_was_asked_for(reader: BatchReader) -> None:
    found = reader.take(asked(3, rows_max=4))
    assert (seqs(found), found.fault) == ([4, 5, 6, 7], None)


def test_a_missing_row_ends_a_batch_and_is_named(database: str, reader: BatchReader) -> None:
    change(database, "DELETE FROM onceflow.outcome WHERE seq = 6")
    gone = Disagrees("diverged", "the database has no outcome with sequence 6")
    found = reader.take(asked(3))
    assert (seqs(found), found.fault) == ([4, 5], gone)
    found = reader.take(asked(5))
    assert (seqs(found), found.fault) == ([], gone)
    found = reader.take(asked(10))
    assert (seqs(found), found.fault) == ([], Disagrees("diverged", "the database has no outcome with sequence 11"))


def test_a_row_that_cannot_be_encoded_ends_a_batch_and_is_named(database: str, reader: BatchReader) -> None:
    change(database, "UPDATE onceflow.outcome SET headers = '[1]' WHERE seq = 6")
    found = reader.take(asked(3))
    assert seqs(found) == [4, 5]
    assert found.fault is not None
    assert (found.fault.code, found.fault.detail.startswith("sequence 6: ")) == ("unpublishable", True)
    assert reader.take(asked(5)).records == []


def test_what_was_read_ahead_is_used_once_and_only_where_it_fits(database: str, reader: BatchReader) -> None:
    reader.read_ahead(asked(3, rows_max=2))
    change(database, "DELETE FROM onceflow.outcome")
    assert seqs(reader.take(asked(3))) == [4, 5], "from memory"
    assert seqs(reader.take(asked(3))) == []


@pytest.mark.parametrize("question", [asked(4), asked(3, rows_max=1)])
def test_what_does_not_fit_is_read_again(database: str, reader: BatchReader, question: Question) -> None:
    reader.read_ahead(asked(3, rows_max=2))
    change(database, "DELETE FROM onceflow.outcome")
    assert seqs(reader.take(question)) == []


def test_a_lane_that_was_stopped_is_read_again(database: str, reader: BatchReader) -> None:
    reader.read_ahead(asked(3, rows_max=2))
    change(database, "DELETE FROM onceflow.outcome")
    reader.forget(0)
    assert seqs(reader.take(asked(3))) == []
