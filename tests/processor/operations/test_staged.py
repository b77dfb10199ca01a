"""Outcomes of application transactions on their way into lanes: in order, once, and nobody waits for an open transaction."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection
from psycopg.rows import dict_row

from onceflow import Event, Handlers, Tx, attach
from onceflow_processor.attempt import limits_setter
from onceflow_processor.operations import staged as staged_module
from onceflow_processor.operations.staged import StagedOutcomes
from onceflow_schemas.identity import lane_of
from onceflow_schemas.sql import queries
from onceflow_schemas.told_facts import fact_digest, told_digests
from tests.processor.conftest import LANES, Bench, event_body, record
from tests.processor.test_batch_runner import MakeBench

TURNS_MAX = 100


@pytest.fixture
def one(bench: MakeBench) -> Bench:
    handlers = Handlers()

    @handlers.on("invoice.paid")
    def note(event: Event, tx: Tx) -> None:
        tx.outcome("event", key=event.object["id"], data={})

    made = bench(handlers)
    with psycopg.connect(made.url, autocommit=True) as setup:
        setup.execute(
            "INSERT INTO onceflow.deployment (id, accounts, mode, system_id, timeline) VALUES ('d', '{acct_test}', 'test', 's', 1)"
        )
    return made


@pytest.fixture
def mover(one: Bench) -> Iterator[Connection[Any]]:
    with psycopg.connect(one.url) as connection:
        yield connection


def staged_outcomes(connection: Connection[Any]) -> StagedOutcomes:
    version = connection.info.server_version
    return StagedOutcomes(
        set_limits=limits_setter(lock_timeout_ms=500, transaction_ms_max=5_000, server_version=version)
    )


def move_all(connection: Connection[Any]) -> int:
    moving, moved = staged_outcomes(connection), 0
    for _ in range(TURNS_MAX):
        now = moving.move(connection)
        if not now:
            return moved
        moved += now
    raise AssertionError


def ask(url: str, *keys: str, cause: str = "c", data: dict[str, Any] | None = None) -> None:
    with psycopg.connect(url) as connection:
        tx = attach(connection, cause=cause)
        for key in keys:
            tx.outcome("app", key=key, data=data or {"key": key})


def left(one: Bench) -> int:
    return len(one.rows("SELECT * FROM onceflow.outcome_staged"))


def key_of_lane(lane: int) -> str:
    return next(f"k{n}" for n in range(1_000) if lane_of(f"k{n}", LANES) == lane)


def test_outcomes_get_their_sequence_in_the_order_of_asking(one: Bench, mover: Connection[Any]) -> None:
    keys = [f"key-{n}" for n in range(30)]
    ask(one.url, *keys)
    assert move_all(mover) == 30
    assert left(one) == 0
    rows = one.rows("SELECT * FROM onceflow.outcome ORDER BY lane, seq")
    assert sorted(row["key"] for row in rows) == sorted(keys)
    for lane in range(LANES):
        mine = [row for row in rows if row["lane"] == lane]
        assert [row["seq"] for row in mine] == list(range(1, len(mine) + 1))
        assert [row["key"] for row in mine] == [key for key in keys if lane_of(key, LANES) == lane]
    assert {row["cause"] for row in rows} == {"app:c"}
    assert all(row["ce_id"] == row["outcome_id"] and row["revision"] == 1 for row in rows)
    [first] = [row for row in rows if row["key"] == "key-0"]
    assert first["value"] == b'{"key":"key-0"}'


def test_nothing_to_move_is_nothing(mover: Connection[Any]) -> None:
    assert staged_outcomes(mover).move(mover) == 0
    assert mover.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_many_are_moved_in_pages(one: Bench, mover: Connection[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_module, "PAGE_ROWS", 4)
    ask(one.url, *(f"key-{n}" for n in range(10)))
    assert staged_outcomes(mover).move(mover) == 4
    assert move_all(mover) == 6
    assert len(one.outcomes()) == 10


def test_each_outcome_tells_what_its_cause_claimed(one: Bench, mover: Connection[Any]) -> None:
    """Whether it was claimed before or after the outcome was asked for."""
    with psycopg.connect(one.url) as connection:
        tx = attach(connection, cause="c")
        assert tx.once("paid", "before")
        tx.outcome("app", key="a", data={})
        assert tx.once("paid", "after")
        assert attach(connection, cause="d").once("paid", "of another")
    ask(one.url, "b", cause="e")
    assert move_all(mover) == 2
    told = {row["key"]: row["headers"] for row in one.rows("SELECT key, headers FROM onceflow.outcome")}
    assert told["b"] == {}
    assert told_digests(told["a"]["onceflow_facts"]) == [fact_digest("paid", "after"), fact_digest("paid", "before")]


def test_what_was_moved_before_is_not_moved_again(one: Bench, mover: Connection[Any]) -> None:
    ask(one.url, "a")
    assert move_all(mover) == 1
    ask(one.url, "a", "b")
    assert move_all(mover) == 2
    assert sorted(one.outcomes()) == [("app", "a"), ("app", "b")]
    assert left(one) == 0


def test_a_closed_lane_holds_up_its_own_outcomes_only(
    one: Bench, mover: Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_module, "PAGE_ROWS", 3)
    closed, free = key_of_lane(0), key_of_lane(1)
    with psycopg.connect(one.url, autocommit=True) as other:
        other.execute("UPDATE onceflow.lane SET state = 'behind' WHERE lane = 0")
    for number in range(8):
        ask(one.url, closed, data={"n": number})
    ask(one.url, free)
    assert move_all(mover) == 1
    assert one.outcomes() == [("app", free)]
    assert left(one) == 8
    with psycopg.connect(one.url, autocommit=True) as other:
        other.execute("UPDATE onceflow.lane SET state = 'ok'")
    assert move_all(mover) == 8
    values = [row["value"] for row in one.rows("SELECT value FROM onceflow.outcome WHERE lane = 0 ORDER BY seq")]
    assert values == [b'{"n":%d}' % number for number in range(8)]


def test_a_lane_that_is_closed_or_held_meanwhile_is_waited_for(one: Bench, mover: Connection[Any]) -> None:
    ask(one.url, "a")
    with psycopg.connect(one.url) as other:
        other.execute("SELECT * FROM onceflow.lane FOR UPDATE")
        assert staged_outcomes(mover).move(mover) == 0
    assert left(one) == 1
    assert move_all(mover) == 1


def test_one_moves_at_a_time(one: Bench, mover: Connection[Any]) -> None:
    ask(one.url, "a")
    with psycopg.connect(one.url) as other:
        other.execute(queries("outcomes_staged")["move_alone"])
        assert staged_outcomes(mover).move(mover) == 0
    assert move_all(mover) == 1


def test_a_database_that_refuses_is_told(one: Bench, mover: Connection[Any]) -> None:
    ask(one.url, "a")
    with psycopg.connect(one.url, autocommit=True) as other:
        other.execute("DROP TABLE onceflow.outcome CASCADE")
    with pytest.raises(psycopg.errors.UndefinedTable):
        staged_outcomes(mover).move(mover)


def test_an_application_that_holds_its_transaction_open_slows_nobody(one: Bench, mover: Connection[Any]) -> None:
    """While it is open, events are handled and the outcomes of others are moved, all without waiting once."""
    with psycopg.connect(one.url) as slow:
        tx = attach(slow, cause="slow")
        tx.outcome("slow", key="k0", data={})
        assert tx.once("slow", "1")
        begun = time.monotonic()
        for turn in range(20):
            body = event_body(f"evt_{turn}", "invoice.paid", {"id": f"in_{turn}", "object": "invoice"})
            one.run([record(body, turn)])
            ask(one.url, f"other-{turn}", cause=f"other-{turn}")
            assert move_all(mover) == 1
        took_seconds = time.monotonic() - begun
        assert len(one.outcomes()) == 40
        slow.commit()
    assert took_seconds < 10.0, "nothing waited: each turn is a few milliseconds"
    assert move_all(mover) == 1
    assert ("slow", "k0") in one.outcomes()


def test_two_movers_and_a_processor_leave_no_gap(one: Bench) -> None:
    """All of them take sequences of the same lanes."""
    stop, failures = threading.Event(), []

    def moving() -> None:
        try:
            with psycopg.connect(one.url) as connection:
                mine = staged_outcomes(connection)
                while not stop.is_set() or left(one):
                    mine.move(connection)
        except Exception as error:  # noqa: BLE001 - shown below.
            failures.append(error)

    movers = [threading.Thread(target=moving) for _ in range(2)]
    for thread in movers:
        thread.start()
    for turn in range(15):
        ask(one.url, *(f"a-{turn}-{n}" for n in range(5)), cause=f"c-{turn}")
        body = event_body(f"evt_{turn}", "invoice.paid", {"id": f"in_{turn}", "object": "invoice"})
        one.run([record(body, turn)])
    stop.set()
    for thread in movers:
        thread.join(30.0)
    assert failures == []
    with psycopg.connect(one.url, row_factory=dict_row) as connection:
        heads = {row["lane"]: row["head_seq"] for row in connection.execute("SELECT * FROM onceflow.lane").fetchall()}
    rows = one.rows("SELECT lane, array_agg(seq ORDER BY seq) AS seqs FROM onceflow.outcome GROUP BY lane")
    assert all(row["seqs"] == list(range(1, heads[row["lane"]] + 1)) for row in rows)
    assert sum(heads.values()) == 15 * 6
