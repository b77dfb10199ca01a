"""Outcomes that came back from the topic are known: a handler that runs again for them gets no second sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import psycopg

from onceflow_processor.event import Event
from onceflow_processor.handlers import Handlers
from onceflow_processor.records import Record
from onceflow_processor.tx import Tx
from tests.processor.conftest import Bench, event_body, record
from tests.processor.processor_process import wait_until

MakeBench = Callable[[Handlers], Bench]


def told(words: Sequence[str]) -> Handlers:
    """One outcome for each word."""
    handlers = Handlers()

    @handlers.on("invoice.paid")
    def tell(event: Event, tx: Tx) -> None:
        for word in words:
            tx.outcome(f"invoice.{word[0]}", key=event.object["id"], data={"word": word})

    return handlers


def paid(numbers: range) -> list[Record]:
    bodies = [
        event_body(f"evt_{n}", "invoice.paid", {"id": f"in_{n}", "object": "invoice", "amount_paid": 1})
        for n in numbers
    ]
    return [record(body, offset) for offset, body in enumerate(bodies)]


def put_back(bench: Bench) -> None:
    """Leave what a restore and an import leave: no marker, no progress, and the outcomes from the topic."""
    bench.change("DELETE FROM onceflow.inbox")
    bench.change("DELETE FROM onceflow.progress")
    bench.change("UPDATE onceflow.outcome SET imported_at = clock_timestamp()")
    bench.positions.clear()


def heads(bench: Bench) -> list[int]:
    return [row["head_seq"] for row in bench.rows("SELECT head_seq FROM onceflow.lane ORDER BY lane")]


def rows(bench: Bench) -> list[dict[str, object]]:
    return bench.rows("SELECT lane, seq, ce_id, value FROM onceflow.outcome ORDER BY lane, seq")


def again(bench: Bench, words: Sequence[str]) -> Bench:
    return Bench(bench.url, bench.connection, told(words))


def test_known_outcomes_are_not_counted_again(bench: MakeBench) -> None:
    first = bench(told(["paid", "seen"]))
    first.run(paid(range(10)))
    before = rows(first), heads(first)
    put_back(first)
    second = again(first, ["paid", "seen"])
    second.run(paid(range(10)))
    assert (rows(second), heads(second)) == before
    assert second.states() == {f"evt_{n}": "processed" for n in range(10)}
    assert second.rows("SELECT * FROM onceflow.outcome_contradiction") == []


def test_what_is_not_known_comes_behind_what_is(bench: MakeBench) -> None:
    first = bench(told(["paid"]))
    first.run(paid(range(10)))
    before = rows(first)
    put_back(first)
    second = again(first, ["new", "paid", "late"])
    second.run(paid(range(12)))
    after = rows(second)
    assert [row for row in after if row in before] == before
    assert len(after) == 10 + 2 * 10 + 3 * 2
    for lane, head in enumerate(heads(second)):
        assert [row["seq"] for row in after if row["lane"] == lane] == list(range(1, head + 1))


def test_where_a_handler_decides_otherwise_the_topics_outcome_stands_and_the_difference_is_kept(
    bench: MakeBench,
) -> None:
    first = bench(told(["paid"]))
    first.run(paid(range(3)))
    first.change("UPDATE onceflow.outcome SET withheld = 'too_large', value = '{}' WHERE key = 'in_2'")
    before = rows(first), heads(first)
    put_back(first)
    second = again(first, ["partly"])
    second.run(paid(range(3)))
    assert (rows(second), heads(second)) == before
    kept = second.rows("SELECT value, cause FROM onceflow.outcome_contradiction ORDER BY cause")
    assert [bytes(row["value"]) for row in kept] == [b'{"word":"partly"}'] * 2, "a withheld one contradicts nothing"
    assert kept[0]["cause"] == "event:acct_test/test/evt_0"
    assert set(second.states().values()) == {"processed"}


def test_an_outcome_that_is_imported_while_a_batch_waits_for_its_lane_is_known_too(bench: MakeBench) -> None:
    """The batch's statement began before the import committed, and gets the lane when it is open again: a single event, so that nothing is halved."""
    first = bench(told(["paid"]))
    first.run(paid(range(1)))
    before = rows(first), heads(first)
    put_back(first)
    [row] = first.rows("SELECT * FROM onceflow.outcome")
    first.change("DELETE FROM onceflow.outcome")
    first.change("UPDATE onceflow.lane SET head_seq = 0")
    second = again(first, ["paid"])
    with psycopg.connect(first.url) as importing, ThreadPoolExecutor(1) as pool:
        importing.execute("SELECT FROM onceflow.lane FOR NO KEY UPDATE")
        batch = pool.submit(second.run, paid(range(1)))
        _wait_for_a_lock(first.url)
        columns = [name for name in row if name != "headers"]
        importing.execute(
            f"INSERT INTO onceflow.outcome ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(columns))})",
            [row[name] for name in columns],
        )
        importing.execute("UPDATE onceflow.lane SET head_seq = 1 WHERE lane = %s", [row["lane"]])
        importing.commit()
        batch.result(30)
    assert (rows(second), heads(second)) == before
    assert second.states() == {"evt_0": "processed"}


def _wait_for_a_lock(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as looking:
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        wait_until(lambda: looking.execute(waiting).fetchone() != (0,), "the batch waits for the lane")
