"""Redrives on a real PostgreSQL: in order, counted before the try, once whoever tries, and nothing is left behind."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress

import psycopg
import pytest

from onceflow import Event, Handlers, Quarantine, RetryIn, Tx
from onceflow_processor.lost_connections import LOST_CONNECTIONS_MAX
from onceflow_processor.redrive import LOOK_SECONDS, TRIES_IN_TURN_MAX
from onceflow_schemas.failure import Unavailable
from onceflow_schemas.failure_course import RetryRules
from tests.processor.conftest import Bench
from tests.processor.poison import Poison, ask_retry, key_rows, ledger, of_key, parked

MakeBench = Callable[[Handlers], Bench]


@pytest.fixture(name="poison")
def handlers_with_poison() -> Poison:
    return Poison()


def test_the_mended_event_and_those_behind_it_run_in_their_order(bench: MakeBench, poison: Poison) -> None:
    """Row 49, and its mending."""
    poison.raises["evt_25"] = LookupError("no such customer")
    one = bench(poison.handlers)
    one.run([of_key(f"evt_{n}", "in_bad", n) for n in range(1, 51)])
    assert one.redrive() == [], "a quarantined head waits for a person"
    poison.raises.clear()
    ask_retry(one, "evt_25")
    ends = one.redrive(30)
    assert [end.counts[0].processed for end in ends][:3] == [1, 2, 4], "more and more of them, while they are fast"
    assert sum(end.counts[0].processed for end in ends) == 26
    assert ledger(one) == [f"evt_{n}" for n in range(1, 51)]
    assert set(one.states().values()) == {"processed"}
    assert (parked(one), key_rows(one)) == ([], [])
    assert len(one.outcomes()) == 50
    assert len({row["outcome_id"] for row in one.rows("SELECT outcome_id FROM onceflow.outcome")}) == 50
    assert one.next_offset() == 51
    one.run([of_key("evt_51", "in_bad", 51)])
    assert one.states()["evt_51"] == "processed"


def test_a_head_that_fails_again_waits_longer_and_then_for_a_person(bench: MakeBench, poison: Poison) -> None:
    poison.raises["evt_1"] = TimeoutError("slow")
    one = bench(poison.handlers)
    one.retry = RetryRules(wait_seconds_min=10.0, wait_seconds_max=1_000.0, attempts_max=3)
    one.run([of_key("evt_1", "in_1", 0), of_key("evt_2", "in_1", 1)])
    spans = []
    for tries in (1, 2):
        one.make_due()
        one.redrive()
        [row] = one.rows("SELECT attempts, open_tries, code FROM onceflow.parked WHERE event_id = 'evt_1'")
        assert (row["attempts"], row["open_tries"], row["code"]) == (tries, 0, "dependency_failed")
        [wait] = one.rows(
            "SELECT extract(epoch FROM due_at - clock_timestamp())::float8 AS seconds FROM onceflow.parked_key"
        )
        spans.append(wait["seconds"])
    assert 9 < spans[0] <= 40
    assert 9 < spans[1] <= 80
    one.make_due()
    [end] = one.redrive()
    assert end.counts[0].quarantined == {"dependency_failed": 1}
    assert one.states() == {"evt_1": "quarantined", "evt_2": "parked"}
    assert key_rows(one) == [("acct_test/in_1", "quarantined", "evt_1")]
    [row] = one.rows("SELECT attempts, detail, order_key FROM onceflow.quarantine")
    assert row == {
        "attempts": 3,
        "detail": "TimeoutError: slow (after 3 tries from parking)",
        "order_key": "acct_test/in_1",
    }
    assert one.redrive() == []


def test_what_fails_again_after_a_persons_retry_is_quarantined_again(bench: MakeBench, poison: Poison) -> None:
    poison.raises["evt_1"] = LookupError("first")
    one = bench(poison.handlers)
    one.run([of_key("evt_1", "in_1", 0), of_key("evt_2", "in_1", 1)])
    poison.raises["evt_1"] = ValueError("second")
    ask_retry(one, "evt_1")
    one.redrive(10)
    assert one.states() == {"evt_1": "quarantined", "evt_2": "parked"}
    [row] = one.rows("SELECT detail, decision, attempts FROM onceflow.quarantine")
    assert row == {"detail": "ValueError: second", "decision": None, "attempts": 1}
    assert key_rows(one) == [("acct_test/in_1", "quarantined", "evt_1")]


def test_an_event_behind_that_fails_itself_stops_the_key_again(bench: MakeBench, poison: Poison) -> None:
    poison.raises = {"evt_1": RetryIn(60), "evt_3": LookupError("bad")}
    one = bench(poison.handlers)
    one.run([of_key(f"evt_{n}", "in_1", n) for n in range(1, 6)])
    del poison.raises["evt_1"]
    one.make_due()
    one.redrive(10)
    assert [one.states()[f"evt_{n}"] for n in range(1, 6)] == [
        "processed",
        "processed",
        "quarantined",
        "parked",
        "parked",
    ]
    assert poison.calls.count("evt_3") == 3, "it never ran before, so it has its tries"
    assert key_rows(one) == [("acct_test/in_1", "quarantined", "evt_3")]


def test_two_that_redrive_at_once_run_everything_once(bench: MakeBench, poison: Poison) -> None:
    one, two = bench(poison.handlers), bench(poison.handlers)
    for n in range(40):
        poison.raises[f"evt_{n}_0"] = RetryIn(60)
    one.run([of_key(f"evt_{n}_{place}", f"in_{n}", 3 * n + place) for n in range(40) for place in range(3)])
    poison.raises.clear()
    one.make_due()
    failures: list[BaseException] = []

    def work(on: Bench) -> None:
        try:
            while parked(on):
                on.redrive()
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below.
            failures.append(error)

    threads = [threading.Thread(target=work, args=(each,)) for each in (one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    done = ledger(one)
    assert sorted(done) == sorted(f"evt_{n}_{place}" for n in range(40) for place in range(3))
    for n in range(40):
        assert [event_id for event_id in done if event_id.startswith(f"evt_{n}_")] == [f"evt_{n}_{p}" for p in range(3)]
    assert len(one.outcomes()) == 120


def test_a_redrive_that_lost_its_key_writes_nothing(bench: MakeBench, poison: Poison) -> None:
    """It slept past its lease: somebody else tried the head, and its own work is rolled back."""
    one, two = bench(poison.handlers), bench(poison.handlers)
    poison.raises["evt_1"] = RetryIn(60)
    one.run([of_key("evt_1", "in_1", 0), of_key("evt_2", "in_1", 1)])
    poison.raises.clear()
    one.make_due()

    @poison.handlers.on("invoice.paid", name="sleeps")
    def sleeps(event: object, tx: object) -> None:
        if not slept:
            slept.append("once")
            with psycopg.connect(one.url, autocommit=True) as other:
                # The marker is held by the sleeper's transaction, so the other one only takes the key.
                other.execute("UPDATE onceflow.parked_key SET fence = fence + 1, lease_owner = 'another'")

    slept: list[str] = []
    [end] = one.redrive()
    assert (end.counts, ledger(one)) == ([], [])
    assert one.states() == {"evt_1": "parked", "evt_2": "parked"}
    with psycopg.connect(one.url, autocommit=True) as other:
        other.execute("UPDATE onceflow.parked_key SET lease_until = clock_timestamp()")
    two.redrive(10)
    assert ledger(one) == ["evt_1", "evt_2"]
    assert (parked(one), key_rows(one)) == ([], [])
    assert len(one.outcomes()) == 2


def test_a_key_that_a_batch_parks_behind_while_its_last_event_is_redriven(bench: MakeBench, poison: Poison) -> None:
    """Real threads: the batch must neither lose its event nor run it before the one in front of it."""
    one, two = bench(poison.handlers), bench(poison.handlers)
    one.positions = two.positions
    for round_number in range(15):
        key = f"in_{round_number}"
        first, second = f"evt_{round_number}_1", f"evt_{round_number}_2"
        poison.raises[first] = RetryIn(0)
        one.run([of_key(first, key, 2 * round_number)])
        poison.raises.clear()
        batch = threading.Thread(target=one.run, args=([of_key(second, key, 2 * round_number + 1)],))
        batch.start()
        two.redrive()
        batch.join(30)
        two.redrive(2)
        done = ledger(one)
        assert done.index(first) < done.index(second)
        assert (parked(one), key_rows(one)) == ([], [])
    assert len(one.outcomes()) == 30


def test_a_lost_database_costs_no_try(bench: MakeBench, poison: Poison) -> None:
    one = bench(poison.handlers)
    poison.raises["evt_1"] = RetryIn(0)
    one.run([of_key("evt_1", "in_1", 0)])

    @poison.handlers.on("invoice.paid", name="cut")
    def cut(_event: object, tx: object) -> None:
        with psycopg.connect(one.url, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", [one.connection.info.backend_pid])

    poison.raises.clear()
    with pytest.raises(Unavailable):
        one.redrive()
    [row] = one.rows("SELECT attempts, open_tries FROM onceflow.parked")
    assert (row["attempts"], row["open_tries"]) == (1, 1)


def test_an_event_that_costs_the_connection_again_and_again_is_given_up_although_others_are_done_meanwhile(
    bench: MakeBench, poison: Poison
) -> None:
    """Events of another key stand further on in the same partition, and are tried in between."""
    one = bench(poison.handlers)
    poison.raises |= {"evt_cuts": RetryIn(60), "evt_other": RetryIn(60)}
    one.run([of_key("evt_cuts", "in_1", 0), of_key("evt_other", "in_2", 1)])

    @poison.handlers.on("invoice.paid", name="cut")
    def cut(event: Event, tx: Tx) -> None:
        if event.id == "evt_cuts":
            tx.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    del poison.raises["evt_cuts"]
    redrive, lost = one.redriving(), 0
    with ExitStack() as opened:
        for _ in range(4 * LOST_CONNECTIONS_MAX):
            one.make_due()
            if one.connection.closed:
                one.connection = opened.enter_context(closing(psycopg.connect(one.url)))
            with suppress(Unavailable):
                redrive.turn()
            lost += one.connection.closed
            if one.quarantine():
                break
            one.wait(LOOK_SECONDS)
    assert one.quarantine() == {0: "handler_broke_transaction"}
    assert lost == LOST_CONNECTIONS_MAX


def test_an_event_in_whose_tries_processes_died_is_quarantined_without_another(
    bench: MakeBench, poison: Poison
) -> None:
    one = bench(poison.handlers)
    poison.raises["evt_1"] = RetryIn(0)
    one.run([of_key("evt_1", "in_1", 0), of_key("evt_2", "in_1", 1)])
    with psycopg.connect(one.url, autocommit=True) as other:
        other.execute("UPDATE onceflow.parked SET open_tries = 3 WHERE event_id = 'evt_1'")
    calls = len(poison.calls)
    one.redrive(10)
    assert one.quarantine() == {0: "process_killed"}
    assert len(poison.calls) == calls
    assert key_rows(one) == [("acct_test/in_1", "quarantined", "evt_1")]


def test_a_closed_lane_keeps_the_head_without_counting_a_try(bench: MakeBench, poison: Poison) -> None:
    one = bench(poison.handlers)
    poison.raises["evt_1"] = RetryIn(0)
    one.run([of_key("evt_1", "in_1", 0)])
    poison.raises.clear()
    with psycopg.connect(one.url, autocommit=True) as other:
        other.execute("UPDATE onceflow.lane SET state = 'behind'")
    one.redrive(10)
    [row] = one.rows("SELECT attempts, open_tries FROM onceflow.parked")
    assert (row["attempts"], row["open_tries"]) == (0, 0)
    with psycopg.connect(one.url, autocommit=True) as other:
        other.execute("UPDATE onceflow.lane SET state = 'ok'")
    assert one.redrive() == [], "it waits a moment"
    one.make_due()
    one.redrive(10)
    assert one.states() == {"evt_1": "processed"}


def test_a_record_comes_back_from_parking_as_it_was(bench: MakeBench, poison: Poison) -> None:
    one = bench(poison.handlers)
    poison.raises["evt_1"] = RetryIn(0)
    made = of_key("evt_1", "in_1", 7)
    made.headers = [*made.headers, ("x-own", b"\x00\xff"), ("x-null", None)]
    one.run([made])
    poison.raises["evt_1"] = Quarantine("look")
    one.redrive(10)
    [row] = one.rows('SELECT key, value, headers, record_time, "offset" FROM onceflow.quarantine')
    assert (row["key"], row["value"], row["offset"]) == (made.key, made.value, 7)
    assert json.loads(json.dumps(row["headers"]))[-2:] == [["x-own", "AP8="], ["x-null", None]]
    assert round(row["record_time"].timestamp() * 1000) == made.timestamp_ms


def test_one_turn_is_bounded(bench: MakeBench, poison: Poison) -> None:
    one = bench(poison.handlers)
    names = [f"evt_{n}" for n in range(TRIES_IN_TURN_MAX + 5)]
    poison.raises = dict.fromkeys(names, RetryIn(0))
    one.run([of_key(name, f"in_{n}", n) for n, name in enumerate(names)])
    poison.raises.clear()
    assert len(one.redrive()) <= TRIES_IN_TURN_MAX
    assert len(parked(one)) >= 5
    while parked(one):
        one.redrive()
    assert sorted(ledger(one)) == sorted(names)
