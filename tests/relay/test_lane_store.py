"""Reads in sequence order within limits; writes only under the token and within bounds."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from onceflow_processor.relay.lane_store import STATEMENT_TIMEOUT_MS, LaneRow, LaneStore, connect, database_failures
from onceflow_schemas.failure import LeaseLost, Misconfigured, Unavailable
from onceflow_schemas.sql import queries
from tests.relay.lanes import add_rows


@pytest.fixture
def database(fresh_database: str) -> str:
    with psycopg.connect(fresh_database) as connection:
        connection.execute("INSERT INTO onceflow.lane (lane, topic_id) VALUES (0, 'T'), (1, 'T')")
        connection.execute(
            "INSERT INTO onceflow.lease VALUES ('relay:t', 'a', 7, clock_timestamp() + interval '1 minute')"
        )
    return fresh_database


@pytest.fixture
def store(database: str) -> Iterator[LaneStore]:
    with connect(database, role="onceflow-relay", prepared=True) as connection:
        yield LaneStore(connection, lease_name="relay:t")


def add(database: str, lane: int, rows: int, *, value_bytes: int = 60) -> None:
    with psycopg.connect(database) as connection:
        add_rows(connection, lane, rows, value_bytes=value_bytes)


def test_a_page_is_bounded_in_rows_and_in_bytes(database: str, store: LaneStore) -> None:
    add(database, 0, 9, value_bytes=992)
    add(database, 1, 3)
    assert [row.seq for row in store.page(0, after_seq=2, rows_max=4, bytes_max=10**6)] == [3, 4, 5, 6]
    assert [row.seq for row in store.page(0, after_seq=0, rows_max=9, bytes_max=2_500)] == [1, 2, 3]
    assert [row.seq for row in store.page(0, after_seq=0, rows_max=9, bytes_max=1)] == [1], "one row always comes"
    assert store.page(0, after_seq=9, rows_max=9, bytes_max=10**6) == []


def test_a_page_reads_only_its_own_rows_whatever_the_statistics_say(database: str) -> None:
    add(database, 0, 2_000)
    given = {"lane": 0, "after_seq": 100, "rows_max": 50, "bytes_max": 10**6}
    with psycopg.connect(database, autocommit=True) as connection:
        for statistics in ("old", "new"):
            rows = connection.execute(b"EXPLAIN (ANALYZE, FORMAT JSON) " + queries("relay")["outcome_page"], given)
            plan = rows.fetchone()
            assert plan is not None
            assert most_rows(plan[0][0]["Plan"]) == 50, statistics
            connection.execute("ANALYZE onceflow.outcome")


def most_rows(node: dict[str, Any]) -> float:
    return max([node["Actual Rows"], *(most_rows(child) for child in node.get("Plans", []))])  # type: ignore[no-any-return]


def test_sequences_of_any_size(database: str, store: LaneStore) -> None:
    """The client sends a number in the smallest type that holds it, so a sum may overflow that type."""
    with psycopg.connect(database) as connection:
        for after_seq in (32_760, 2_147_483_640):
            connection.execute("UPDATE onceflow.lane SET head_seq = %s WHERE lane = 0", [after_seq])
            add_rows(connection, 0, 20)
            connection.commit()
            found = store.page(0, after_seq=after_seq, rows_max=20, bytes_max=10**6)
            assert [row.seq for row in found] == list(range(after_seq + 1, after_seq + 21))


def test_texts_come_as_they_go_out(database: str, store: LaneStore) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET timezone = 'America/New_York'")
        connection.execute("UPDATE onceflow.lane SET head_seq = 1")
        connection.execute(
            "INSERT INTO onceflow.outcome (lane, seq, outcome_id, ce_id, type, key, value, headers, cause, created_at)"
            " VALUES (0, 1, %s, %s, 't', 'Ünïcode', '{}', '{\"a\": \"b\"}', 'app:x', '2026-01-02 03:04:05.000006+00')",
            [uuid.UUID(int=1), uuid.UUID(int=2)],
        )
    row = store.page(0, after_seq=0, rows_max=1, bytes_max=1)[0]
    assert row.outcome_id == b"00000000-0000-0000-0000-000000000001"
    assert row.ce_id == b"00000000-0000-0000-0000-000000000002"
    assert (row.key, row.cause, row.headers) == ("Ünïcode".encode(), b"app:x", '{"a": "b"}')
    assert row.created_at == b"2026-01-02T03:04:05.000006Z"


def test_publishing_is_marked_only_under_the_token(database: str, store: LaneStore) -> None:
    add(database, 0, 5)
    with pytest.raises(LeaseLost):
        store.mark_published(6, {0: 5})
    with pytest.raises(LeaseLost):
        store.mark_published(8, {0: 5})
    store.mark_published(7, {0: 5})
    assert [(row.head, row.published) for row in store.lanes()] == [(5, 5), (0, 0)]


def test_publishing_is_never_marked_above_the_head_nor_back(database: str, store: LaneStore) -> None:
    add(database, 0, 5)
    add(database, 1, 5)
    store.mark_published(7, {0: 3, 1: 3})
    for seqs in ({0: 6}, {0: 2}, {0: 4, 1: 6}, {9: 1}):
        with pytest.raises(Unavailable):
            store.mark_published(7, seqs)
    assert [row.published for row in store.lanes()] == [3, 3]
    store.mark_published(7, {0: 3, 1: 4})
    assert [row.published for row in store.lanes()] == [3, 4]


def test_marking_opens_a_lane_that_an_outcome_had_stopped_and_no_other(database: str, store: LaneStore) -> None:
    add(database, 0, 5)
    add(database, 1, 5)
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE onceflow.lane SET state = 'stopped:unpublishable', detail = 'd' WHERE lane = 0")
        connection.execute("UPDATE onceflow.lane SET state = 'stopped:tail_lost', detail = 'd' WHERE lane = 1")
    store.mark_published(7, {0: 1, 1: 1})
    assert [(row.state, row.detail) for row in store.lanes()] == [("ok", ""), ("stopped:tail_lost", "d")]


def test_a_state_is_changed_under_the_token_and_from_the_state_that_was_read(store: LaneStore) -> None:
    row = store.lanes()[0]
    assert row == LaneRow(0, 0, 0, "T", "ok", "")
    with pytest.raises(LeaseLost):
        store.set_state(6, row, state="behind", detail="x")
    assert store.set_state(7, row, state="behind", detail="x")
    assert not store.set_state(7, row, state="stopped:tail_lost", detail="y"), "the row was changed meanwhile"
    assert store.lanes()[0] == LaneRow(0, 0, 0, "T", "behind", "x")


def test_ids(database: str, store: LaneStore) -> None:
    add(database, 0, 3)
    found = store.ids([(0, 2), (0, 9), (1, 1)])
    assert list(found) == [0, 1]
    assert (list(found[0]), list(found[1])) == ([2], [])
    assert sorted(store.ids_between(0, first_seq=2, last_seq=9)) == [2, 3]


def test_a_locked_lane_is_waited_for_only_so_long(database: str, store: LaneStore) -> None:
    add(database, 0, 1)
    with psycopg.connect(database) as holder:
        holder.execute("SELECT FROM onceflow.lane FOR UPDATE")
        with pytest.raises(Unavailable):
            store.mark_published(7, {0: 1})
    store.mark_published(7, {0: 1})


def test_who_is_stopped_in_the_middle_of_a_write_holds_up_an_heir_for_seconds_only(
    database: str, store: LaneStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(database, 0, 1)
    stopped, goes_on = threading.Event(), threading.Event()
    transaction = store._connection.transaction

    @contextmanager
    def stopped_before_commit() -> Iterator[None]:
        with transaction():
            yield
            stopped.set()
            goes_on.wait(60)

    monkeypatch.setattr(store._connection, "transaction", stopped_before_commit)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(database, autocommit=True) as heir:
        write = pool.submit(store.mark_published, 7, {0: 1})
        try:
            assert stopped.wait(20)
            heir.execute("SELECT set_config('statement_timeout', %s, false)", [str(STATEMENT_TIMEOUT_MS * 4)])
            heir.execute("UPDATE onceflow.lease SET token = 8")
        finally:
            goes_on.set()
        with pytest.raises(Unavailable):
            write.result(60)


def test_failures_by_who_must_act(empty_database: str) -> None:
    with connect(empty_database, role="onceflow-relay", prepared=False) as connection:
        assert connection.prepare_threshold is None
        with pytest.raises(Misconfigured, match="schema_missing"):
            LaneStore(connection, lease_name="x").lanes()
        with pytest.raises(psycopg.errors.SyntaxError), database_failures():
            connection.execute("SELEKT")


def test_an_address_that_does_not_work() -> None:
    with pytest.raises(Unavailable, match="database_unavailable"):
        connect("postgresql://nobody@127.0.0.1:1/x", role="onceflow-relay", prepared=True)
    with pytest.raises(Misconfigured) as caught:
        connect("postgresql://u:geheim@[bad", role="onceflow-relay", prepared=True)
    assert "geheim" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_the_role_shows_in_the_servers_list(database: str) -> None:
    with connect(database, role="onceflow-relay", prepared=True) as connection:
        row = connection.execute("SELECT current_setting('application_name'), current_setting('statement_timeout')")
        assert row.fetchone() == ("onceflow-relay", "0")
