"""Outcomes that came back from the topic are known: a handler that runs again for them gets no second sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onceflow_processor.event import Event
from onceflow_processor.handlers import Handlers
from onceflow_processor.records import Record
from onceflow_processor.tx import Tx
from tests.processor.conftest import Bench, event_body, record

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
