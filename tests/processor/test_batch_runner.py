"""Batches on a real PostgreSQL: all or none, whatever a handler does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from onceflow_processor.claim import OUT_OF_TURN
from onceflow_processor.event import Event
from onceflow_processor.handlers import Handlers
from onceflow_processor.position import Position
from onceflow_processor.records import Partition
from onceflow_processor.tx import Tx
from onceflow_schemas.failure import LeaseLost, Unavailable
from tests.processor.conftest import TOPIC, TOPIC_ID, Bench, event_body, record

MakeBench = Callable[[Handlers], Bench]


def paid(event_id: str, invoice: str = "in_1", **extra: Any) -> bytes:
    return event_body(event_id, "invoice.paid", {"id": invoice, "object": "invoice", "amount_paid": 100}, **extra)


def simple() -> Handlers:
    handlers = Handlers()

    @handlers.on("invoice.paid")
    def note(event: Event, tx: Tx) -> None:
        tx.execute("INSERT INTO public.ledger (event_id) VALUES (%s)", [event.id])
        tx.outcome("invoice.paid", key=event.object["id"], data={"event": event.id})

    return handlers


def test_a_batch_is_written_as_one(bench: MakeBench) -> None:
    one = bench(simple())
    end = one.run([record(paid(f"evt_{n}", f"in_{n}"), n) for n in range(10)])
    assert one.states() == {f"evt_{n}": "processed" for n in range(10)}
    assert sorted(one.outcomes()) == sorted(("invoice.paid", f"in_{n}") for n in range(10))
    assert one.next_offset() == 10
    assert end.positions[Partition(TOPIC, 0)].next_offset == 10
    assert len(one.rows("SELECT * FROM public.ledger")) == 10
    lanes = one.rows("SELECT lane, array_agg(seq ORDER BY seq) AS seqs FROM onceflow.outcome GROUP BY lane")
    assert all(row["seqs"] == list(range(1, len(row["seqs"]) + 1)) for row in lanes)
    assert one.rows("SELECT * FROM onceflow.batch_guard") == []


def test_types_without_a_handler_are_ignored(bench: MakeBench) -> None:
    one = bench(simple())
    one.run([record(event_body("evt_1", "customer.created", {"id": "cus_1", "object": "customer"}), 0)])
    assert one.states() == {"evt_1": "ignored"}
    assert one.next_offset() == 1


def test_repeats_have_no_second_effect(bench: MakeBench) -> None:
    one = bench(simple())
    body = paid("evt_1")
    first = one.run([record(body, 0), record(body, 1)])
    second = one.run([record(body, 2), record(paid("evt_2", "in_2"), 3)])
    assert [first.counts[0].duplicate, second.counts[0].duplicate] == [1, 1]
    assert len(one.outcomes()) == 2
    assert one.quarantine() == {}
    [marker] = one.rows("""SELECT "offset" FROM onceflow.inbox WHERE event_id = 'evt_1'""")
    assert marker["offset"] == 0
    assert one.next_offset() == 4


def test_the_same_id_with_other_content_is_kept_for_a_person(bench: MakeBench) -> None:
    one = bench(simple())
    one.run([record(paid("evt_1"), 0)])
    one.run(
        [
            record(paid("evt_1", pending_webhooks=3), 1),
            record(paid("evt_1", api_version="2025-01-01"), 2),
            record(paid("evt_1", "in_other"), 3),
            record(paid("evt_2", "in_2"), 4),
            record(paid("evt_2", "in_3"), 5),
        ]
    )
    assert one.quarantine() == {3: "content_conflict", 5: "content_conflict"}
    assert one.states() == {"evt_1": "processed", "evt_2": "processed"}
    assert sorted(key for _, key in one.outcomes()) == ["in_1", "in_2"]


def test_a_failing_handler_takes_only_its_own_event(bench: MakeBench) -> None:
    handlers, calls = simple(), {"bad": 0}

    @handlers.on("invoice.paid", name="second")
    def fail(event: Event, tx: Tx) -> None:
        if event.id in {"evt_3", "evt_40"}:
            calls["bad"] += 1
            tx.execute("INSERT INTO public.ledger (event_id) VALUES ('must not stay')")
            message = "no such customer\x00"
            raise LookupError(message)

    one = bench(handlers)
    one.run([record(paid(f"evt_{n}", f"in_{n}"), n) for n in range(60)])
    states = one.states()
    assert {key for key, state in states.items() if state == "quarantined"} == {"evt_3", "evt_40"}
    assert len(one.outcomes()) == 58
    assert one.quarantine() == {3: "handler_failed", 40: "handler_failed"}
    assert calls["bad"] == 6
    [row] = one.rows('SELECT * FROM onceflow.quarantine WHERE "offset" = 3')
    assert row["handler"] == "second"
    assert "LookupError" in row["traceback"]
    assert row["value"] == paid("evt_3", "in_3")
    assert one.rows("SELECT * FROM public.ledger WHERE event_id = 'must not stay'") == []


@pytest.mark.parametrize("ending", ["swallow", "commit", "rollback", "sql_commit", "chain", "constraints"])
def test_no_handler_can_break_the_batch_in_two(bench: MakeBench, ending: str) -> None:
    handlers = simple()

    @handlers.on("invoice.paid", name="breaker")
    def breaker(event: Event, tx: Tx) -> None:
        if event.id != "evt_5":
            return
        if ending == "swallow":
            with _quietly():
                tx.execute("INSERT INTO public.no_such_table VALUES (1)")
        elif ending == "commit":
            with _quietly():
                tx.connection.commit()
        elif ending == "rollback":
            tx.connection.rollback()
        elif ending == "sql_commit":
            with _quietly():
                tx.execute("COMMIT")
        elif ending == "chain":
            tx.execute("ROLLBACK AND CHAIN")
        else:
            tx.execute("SET CONSTRAINTS ALL IMMEDIATE")

    one = bench(handlers)
    one.run([record(paid(f"evt_{n}", f"in_{n}"), n) for n in range(12)])
    states = one.states()
    assert states.pop("evt_5") == "quarantined"
    assert set(states.values()) == {"processed"}
    assert len(states) == 11
    assert len(one.outcomes()) == 11
    assert len(one.rows("SELECT * FROM public.ledger")) == 11
    assert one.next_offset() == 12
    expected = "handler_failed" if ending in {"swallow", "constraints"} else "handler_broke_transaction"
    assert one.quarantine() == {5: expected}


class _quietly:  # noqa: N801 - reads as a word where it is used.
    """What a careless handler does: except Exception: pass."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        return isinstance(error, Exception)


def test_data_errors_that_show_only_at_commit_are_found_by_halving(bench: MakeBench) -> None:
    handlers = simple()

    @handlers.on("invoice.paid", name="deferred")
    def deferred(event: Event, tx: Tx) -> None:
        tx.execute("INSERT INTO public.child VALUES (%s)", [7 if event.id == "evt_6" else 1])

    one = bench(handlers)
    with psycopg.connect(one.url, autocommit=True) as setup:
        setup.execute("CREATE TABLE public.parent (id int PRIMARY KEY)")
        setup.execute("INSERT INTO public.parent VALUES (1)")
        setup.execute("CREATE TABLE public.child (id int REFERENCES public.parent DEFERRABLE INITIALLY DEFERRED)")
    one.run([record(paid(f"evt_{n}", f"in_{n}"), n) for n in range(9)])
    assert one.quarantine() == {6: "effect_refused"}
    assert one.states()["evt_6"] == "quarantined"
    assert len(one.outcomes()) == 8
    assert one.next_offset() == 9


def once_handlers() -> Handlers:
    handlers = Handlers()

    @handlers.on("invoice.paid")
    def pay_once(event: Event, tx: Tx) -> None:
        if tx.once("paid", event.object["id"]):
            tx.outcome("paid.once", key=event.object["id"], data={"by": event.id})

    return handlers


def test_a_fact_is_claimed_once_within_and_across_batches(bench: MakeBench) -> None:
    one = bench(once_handlers())
    one.run([record(paid("evt_1", "in_1"), 0), record(paid("evt_2", "in_1"), 1)])
    one.run([record(paid("evt_3", "in_1"), 2), record(paid("evt_4", "in_4"), 3)])
    assert sorted(one.outcomes()) == [("paid.once", "in_1"), ("paid.once", "in_4")]
    assert set(one.states().values()) == {"processed"}


def test_a_fact_taken_by_somebody_else_is_found_in_the_tail(bench: MakeBench) -> None:
    one = bench(once_handlers())
    with psycopg.connect(one.url, autocommit=True) as other:
        other.execute("INSERT INTO onceflow.fact VALUES ('paid', 'in_1', 'event:x/test/evt_0')")
    one.run([record(paid("evt_1", "in_1"), 0), record(paid("evt_2", "in_2"), 1)])
    assert one.outcomes() == [("paid.once", "in_2")]
    facts = one.rows("SELECT key, cause FROM onceflow.fact ORDER BY key")
    assert [row["cause"] for row in facts] == ["event:x/test/evt_0", "event:acct_test/test/evt_2"]


def test_an_old_epoch_writes_nothing(bench: MakeBench) -> None:
    one = bench(simple())
    one.run([record(paid("evt_1", "in_1"), 0)])
    with psycopg.connect(one.url, autocommit=True) as other:
        other.execute("UPDATE onceflow.progress SET epoch = epoch + 1")
    with pytest.raises(LeaseLost):
        one.run([record(paid("evt_2", "in_2"), 1)])
    assert list(one.states()) == ["evt_1"]
    assert len(one.outcomes()) == 1


def test_a_moved_position_writes_nothing(bench: MakeBench) -> None:
    one = bench(simple())
    one.run([record(paid("evt_1", "in_1"), 0)])
    with psycopg.connect(one.url, autocommit=True) as other:
        other.execute("UPDATE onceflow.progress SET next_offset = 9")
    with pytest.raises(LeaseLost):
        one.run([record(paid("evt_2", "in_2"), 1)])
    assert list(one.states()) == ["evt_1"]


def test_records_that_come_out_of_turn_move_no_position(bench: MakeBench) -> None:
    handlers = simple()

    @handlers.on("invoice.paid", name="picky")
    def picky(event: Event, _tx: Tx) -> None:
        if event.id == "evt_4":
            raise LookupError

    one = bench(handlers)
    one.run([record(paid("evt_1", "in_1"), 0), record(paid("evt_2", "in_2"), 1)])
    one.entry = OUT_OF_TURN
    one.positions = {Partition(TOPIC, 0): Position(TOPIC_ID, 0, 0, None)}
    end = one.run([record(paid(f"evt_{n + 1}", f"in_{n + 1}"), n) for n in range(5)])
    assert end.counts[0].duplicate == 2
    assert one.states() == {f"evt_{n}": "quarantined" if n == 4 else "processed" for n in range(1, 6)}
    assert sorted(one.outcomes()) == [("invoice.paid", f"in_{n}") for n in (1, 2, 3, 5)]
    assert one.quarantine() == {3: "handler_failed"}
    assert one.next_offset() == 2


def test_a_closed_lane_holds_its_partition_and_no_other(bench: MakeBench) -> None:
    one = bench(simple())
    end = one.run([record(paid("evt_1", "in_1"), 0)])
    [lane] = one.rows("SELECT lane FROM onceflow.outcome")
    with psycopg.connect(one.url, autocommit=True) as other:
        other.execute("UPDATE onceflow.lane SET state = 'behind' WHERE lane = %s", [lane["lane"]])
    others = [f"in_{n}" for n in range(2, 30)]
    records = [record(paid(f"evt_p1_{key}", key), n, partition=1) for n, key in enumerate(others)]
    ignored = event_body("evt_i", "customer.created", {"id": "cus_1", "object": "customer"})
    end = one.run([record(ignored, 1), record(paid("evt_2", "in_1"), 2), record(paid("evt_3", "in_3"), 3), *records])
    assert end.held[Partition(TOPIC, 0)] == 2
    assert one.next_offset(0) == 2
    assert "evt_2" not in one.states()
    assert one.states()["evt_i"] == "ignored"
    assert end.closed_lanes == {lane["lane"]: "behind"}
    with psycopg.connect(one.url, autocommit=True) as other:
        other.execute("UPDATE onceflow.lane SET state = 'ok'")
    one.run([record(paid("evt_2", "in_1"), 2), record(paid("evt_3", "in_3"), 3)])
    assert one.next_offset(0) == 4


def test_two_workers_with_the_same_events_in_another_order(bench: MakeBench) -> None:
    """R21: whoever loses waits; it ends as a duplicate, or does the work when the winner rolls back."""
    one, two = bench(simple()), bench(simple())
    one.run([])
    first = [record(paid(f"evt_{n}", f"in_{n}"), n, partition=0) for n in range(200)]
    second = [record(paid(f"evt_{n}", f"in_{n}"), 199 - n, partition=1) for n in reversed(range(200))]
    failures: list[BaseException] = []

    def work(on: Bench, records: list[Any]) -> None:
        try:
            for start in range(0, len(records), 20):
                on.run(records[start : start + 20])
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below.
            failures.append(error)

    threads = [threading.Thread(target=work, args=args) for args in ((one, first), (two, second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert len(one.outcomes()) == 200
    assert len(one.states()) == 200
    assert (one.next_offset(0), one.next_offset(1)) == (200, 200)


def test_a_database_that_is_gone_is_nobodys_fault(bench: MakeBench) -> None:
    handlers = Handlers()

    @handlers.on("invoice.paid")
    def cut(_event: Event, tx: Tx) -> None:
        with psycopg.connect(one.url, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", [tx.connection.info.backend_pid])
        tx.execute("SELECT 1")

    one = bench(handlers)
    with pytest.raises(Unavailable):
        one.run([record(paid("evt_1"), 0)])
    assert one.states() == {}
    assert one.quarantine() == {}


def test_a_slow_batch_is_cut(bench: MakeBench) -> None:
    one = bench(simple())
    one.batch_seconds_max = 0.0
    one.run([record(paid(f"evt_{n}", f"in_{n}"), n) for n in range(8)])
    assert len(one.outcomes()) == 8
    assert one.next_offset() == 8


def test_a_rekeyed_copy_takes_no_marker_from_the_real_event(bench: MakeBench) -> None:
    one = bench(simple())
    copy = record(paid("evt_1"), 0)
    copy.key = b"acct_test/in_other"
    bare = record(paid("evt_1"), 1)
    bare.key = None
    one.run([copy, bare, record(paid("evt_2", "in_2"), 2)])
    assert one.quarantine() == {0: "bad_key", 1: "bad_key"}
    assert one.states() == {"evt_2": "processed"}
    one.run([record(paid("evt_1"), 3)])
    assert one.states() == {"evt_1": "processed", "evt_2": "processed"}


@pytest.mark.parametrize("subject", [b"in_victim", None])
def test_a_copy_that_names_another_object_takes_no_marker_and_moves_no_guard(
    bench: MakeBench, subject: bytes | None
) -> None:
    """Nobody attests the subject, so nothing may be decided by it."""
    handlers = Handlers()

    @handlers.on("invoice.*", order="latest")
    def keep(event: Event, tx: Tx) -> None:
        tx.outcome("kept", key=event.object["id"], data={"event": event.id})

    one = bench(handlers)
    copy = record(paid("evt_1"), 0)
    copy.headers = [(name, value) for name, value in copy.headers or () if name != "ce_subject"]
    if subject is not None:
        copy.headers.append(("ce_subject", subject))
    one.run([copy])
    assert one.quarantine() == {0: "bad_headers"}
    assert one.states() == {}
    assert one.rows("SELECT object_id FROM onceflow.object_guard WHERE created IS NOT NULL") == []
    one.run([record(paid("evt_1"), 1)])
    assert one.states() == {"evt_1": "processed"}


def test_a_lost_grant_is_not_the_events_fault(bench: MakeBench) -> None:
    one = bench(simple())
    with psycopg.connect(one.url, autocommit=True) as setup:
        setup.execute("ALTER TABLE onceflow.outcome RENAME TO outcome_gone")
    with pytest.raises(Unavailable):
        one.run([record(paid("evt_1"), 0)])
    assert one.quarantine() == {}


def test_an_async_handler_is_refused_when_it_slips_through(bench: MakeBench) -> None:
    handlers = Handlers()

    async def later(_event: Event, _tx: Tx) -> None:
        raise AssertionError

    @handlers.on("invoice.paid")
    def wrapper(event: Event, tx: Tx) -> Any:
        return later(event, tx)

    one = bench(handlers)
    one.run([record(paid("evt_1"), 0)])
    assert one.quarantine() == {0: "handler_failed"}


def test_a_long_batch_is_given_up_when_the_process_is_asked_to_stop(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceflow_processor.handler_run.STOPPING_SECONDS_MAX", 0.0)
    one = bench(simple())
    one.stopping = True
    end = one.run([record(paid(f"evt_{n}", f"in_{n}"), n) for n in range(8)])
    assert end.positions == {}
    assert one.states() == {}
    one.stopping = False
    one.run([record(paid(f"evt_{n}", f"in_{n}"), n) for n in range(8)])
    assert len(one.outcomes()) == 8
