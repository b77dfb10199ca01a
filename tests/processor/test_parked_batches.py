"""Parking on a real PostgreSQL: who waits behind whom, and that none is left behind or run twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from onceflow import Event, Handlers, Quarantine, RetryIn, Tx
from tests.processor.conftest import Bench, event_body, record
from tests.processor.poison import Poison, key_rows, ledger, of_key, parked

MakeBench = Callable[[Handlers], Bench]


@pytest.fixture(name="poison")
def handlers_with_poison() -> Poison:
    return Poison()


def test_fifty_of_one_key_with_the_twenty_fifth_poisoned(bench: MakeBench, poison: Poison) -> None:
    """Row 49."""
    poison.raises["evt_25"] = LookupError("no such customer")
    one = bench(poison.handlers)
    fifty = [of_key(f"evt_{n}", "in_bad", 2 * n) for n in range(1, 51)]
    others = [of_key(f"evt_other_{n}", f"in_{n}", 2 * n + 1) for n in range(1, 51)]
    one.run(sorted([*fifty, *others], key=lambda made: made.offset))
    states = one.states()
    assert {n: states[f"evt_{n}"] for n in range(1, 25)} == dict.fromkeys(range(1, 25), "processed")
    assert states["evt_25"] == "quarantined"
    assert {n: states[f"evt_{n}"] for n in range(26, 51)} == dict.fromkeys(range(26, 51), "parked")
    assert {states[f"evt_other_{n}"] for n in range(1, 51)} == {"processed"}
    assert parked(one) == [f"evt_{n}" for n in range(26, 51)]
    assert key_rows(one) == [("acct_test/in_bad", "quarantined", "evt_25")]
    assert [event_id for event_id in ledger(one) if "other" not in event_id] == [f"evt_{n}" for n in range(1, 25)]
    assert poison.calls.count("evt_25") == 3
    assert not [call for call in poison.calls if call in {f"evt_{n}" for n in range(26, 51)}]
    [row] = one.rows("SELECT order_key, type, failure_group, attempts FROM onceflow.quarantine")
    assert row == {
        "order_key": "acct_test/in_bad", "type": "invoice.paid", "attempts": 0,
        "failure_group": "invoice.paid note LookupError",
    }  # fmt: skip
    assert one.next_offset() == 102


@pytest.mark.parametrize("is_parked_before", [False, True])
def test_one_that_failed_for_good_waits_its_turn_behind_an_earlier_one_that_has_to_wait(
    bench: MakeBench, poison: Poison, *, is_parked_before: bool
) -> None:
    """The earlier one goes well in the first attempt, and not in the one that leaves the failed one out."""
    poison.raises["evt_2"] = Quarantine("not ours")
    one, is_away = bench(poison.handlers), True

    @poison.handlers.on("invoice.paid", name="flaky")
    def flaky(event: Event, _tx: Tx) -> None:
        if event.id == "evt_1" and "evt_2" in poison.calls and is_away:
            raise RetryIn(0)

    if is_parked_before:
        poison.raises["evt_0"] = RetryIn(0)
        one.run([of_key("evt_0", "in_1", 0), of_key("evt_1", "in_1", 1)])
        assert parked(one) == ["evt_0", "evt_1"]
    one.run([of_key(f"evt_{n}", "in_1", n) for n in ((2, 3) if is_parked_before else (1, 2, 3))])
    first = [] if not is_parked_before else ["evt_0"]
    assert parked(one) == [*first, "evt_1", "evt_2", "evt_3"]
    assert key_rows(one) == [("acct_test/in_1", "retry", (*first, "evt_1")[0])]
    assert one.quarantine() == {}
    poison.raises.pop("evt_0", None)
    is_away = False
    one.make_due()
    one.redrive(10)
    assert ledger(one) == [*first, "evt_1"]
    assert key_rows(one) == [("acct_test/in_1", "quarantined", "evt_2")]
    assert parked(one) == ["evt_3"]
    assert "evt_3" not in poison.calls


def test_events_of_a_parked_key_in_later_batches_and_partitions_wait_behind(bench: MakeBench, poison: Poison) -> None:
    poison.raises["evt_1"] = ConnectionRefusedError("the rating service is away")
    one = bench(poison.handlers)
    one.run([of_key("evt_1", "in_1", 0), of_key("evt_2", "in_2", 1)])
    one.run([of_key("evt_3", "in_1", 2), of_key("evt_4", "in_1", 0, partition=1), of_key("evt_5", "in_3", 3)])
    assert one.states() == {
        "evt_1": "parked", "evt_2": "processed", "evt_3": "parked", "evt_4": "parked", "evt_5": "processed",
    }  # fmt: skip
    assert parked(one) == ["evt_1", "evt_3", "evt_4"]
    assert key_rows(one) == [("acct_test/in_1", "retry", "evt_1")]
    assert poison.calls.count("evt_1") == 1, "what passes by itself is not tried again at once"
    rows = one.rows(
        "SELECT event_id, code, handler, failure_group, next_attempt_at IS NULL AS free FROM onceflow.parked ORDER BY seq"
    )
    assert [row["code"] for row in rows] == ["dependency_failed", None, None]
    assert [row["free"] for row in rows] == [False, True, True]
    assert rows[0]["failure_group"] == "invoice.paid note ConnectionRefusedError"


def test_a_handler_that_says_when(bench: MakeBench, poison: Poison) -> None:
    poison.raises["evt_1"] = RetryIn(3_600, "the contract is not signed yet")
    poison.raises["evt_3"] = Quarantine("two contracts match")
    one = bench(poison.handlers)
    one.run(
        [of_key("evt_1", "in_1", 0), of_key("evt_2", "in_1", 1), of_key("evt_3", "in_3", 2), of_key("evt_4", "in_3", 3)]
    )
    assert one.states() == {"evt_1": "parked", "evt_2": "parked", "evt_3": "quarantined", "evt_4": "parked"}
    assert poison.calls.count("evt_1") == poison.calls.count("evt_3") == 1
    [row] = one.rows(
        "SELECT extract(epoch FROM due_at - clock_timestamp())::int AS seconds FROM onceflow.parked_key"
        " WHERE order_key = 'acct_test/in_1'"
    )
    assert 3_590 < row["seconds"] <= 3_600
    assert one.quarantine() == {2: "quarantine_asked"}
    [head] = one.rows("SELECT code, detail FROM onceflow.parked WHERE event_id = 'evt_1'")
    assert head == {"code": "retry_asked", "detail": "RetryIn: the contract is not signed yet"}


def test_content_faults_block_no_key(bench: MakeBench, poison: Poison) -> None:
    one = bench(poison.handlers)
    bad = record(event_body("evt_1", "invoice.paid", {"id": "in_1", "object": "invoice", "amount_paid": 1.5}), 0)
    one.run([bad, of_key("evt_2", "in_1", 1)])
    assert one.states() == {"evt_1": "quarantined", "evt_2": "processed"}
    assert key_rows(one) == []
    assert one.rows("SELECT order_key FROM onceflow.quarantine") == [{"order_key": None}]


def test_types_without_handlers_wait_behind_nothing(bench: MakeBench, poison: Poison) -> None:
    poison.raises["evt_1"] = Quarantine("look")
    one = bench(poison.handlers)
    other = record(event_body("evt_2", "invoice.voided", {"id": "in_1", "object": "invoice"}), 1)
    one.run([of_key("evt_1", "in_1", 0), other])
    assert one.states() == {"evt_1": "quarantined", "evt_2": "ignored"}


@pytest.mark.parametrize("cut", ["halved", "cut"])
def test_parts_of_a_batch_know_the_key_that_an_earlier_part_stopped(bench: MakeBench, poison: Poison, cut: str) -> None:
    one = bench(poison.handlers)
    if cut == "cut":
        one.batch_seconds_max = 0.0
        poison.raises["evt_2"] = Quarantine("look")
    else:

        @poison.handlers.on("invoice.paid", name="deferred")
        def deferred(event: Event, tx: Tx) -> None:
            tx.execute("INSERT INTO public.child VALUES (%s)", [7 if event.id == "evt_2" else 1])

        with psycopg.connect(one.url, autocommit=True) as setup:
            setup.execute("CREATE TABLE public.parent (id int PRIMARY KEY)")
            setup.execute("INSERT INTO public.parent VALUES (1)")
            setup.execute("CREATE TABLE public.child (id int REFERENCES public.parent DEFERRABLE INITIALLY DEFERRED)")
    one.run([of_key(f"evt_{n}", "in_1" if n % 2 == 0 else f"in_x{n}", n) for n in range(9)])
    states = one.states()
    assert [states[f"evt_{n}"] for n in (0, 2, 4, 6, 8)] == ["processed", "quarantined", "parked", "parked", "parked"]
    assert {states[f"evt_{n}"] for n in (1, 3, 5, 7)} == {"processed"}
    assert parked(one) == ["evt_4", "evt_6", "evt_8"]


def test_an_event_that_meets_a_lock_again_and_again_waits_alone(bench: MakeBench, poison: Poison) -> None:
    """What passes is run again; where it stays, it costs the event a wait and not the partition."""
    one = bench(poison.handlers)
    one.wait = lambda _seconds: None
    with psycopg.connect(one.url) as holder:
        holder.execute("INSERT INTO public.ledger VALUES ('evt_1', 'held')")

        @poison.handlers.on("invoice.paid", name="impatient")
        def impatient(event: Event, tx: Tx) -> None:
            if event.id == "evt_9":
                tx.execute("SET LOCAL lock_timeout = '20ms'")
                tx.execute("INSERT INTO public.ledger VALUES ('evt_1', 'mine')")

        one.run([of_key("evt_8", "in_8", 0), of_key("evt_9", "in_9", 1), of_key("evt_10", "in_10", 2)])
    assert one.states() == {"evt_8": "processed", "evt_9": "parked", "evt_10": "processed"}
    [row] = one.rows("SELECT code, failure_group FROM onceflow.parked")
    assert row == {"code": "dependency_failed", "failure_group": "invoice.paid impatient LockNotAvailable"}


def test_a_broken_handler_parks_no_thousands(bench: MakeBench, poison: Poison) -> None:
    """The breaker comes first: most recent events fail alike, so the partition waits."""
    for n in range(200):
        poison.raises[f"evt_{n}"] = ConnectionResetError("down")
    one = bench(poison.handlers)
    end = one.run([of_key(f"evt_{n}", f"in_{n}", n) for n in range(200)])
    assert len(one.states()) == 15
    assert set(one.states().values()) == {"parked"}
    assert list(end.held.values()) == [15]


def test_handlers_that_ask_for_retries_are_not_broken(bench: MakeBench, poison: Poison) -> None:
    for n in range(60):
        poison.raises[f"evt_{n}"] = RetryIn(60) if n % 2 else Quarantine("look")
    one = bench(poison.handlers)
    end = one.run([of_key(f"evt_{n}", f"in_{n}", n) for n in range(60)])
    assert end.held == {}
    assert sorted(one.states().values()) == ["parked"] * 30 + ["quarantined"] * 30


def test_a_key_that_is_redriven_to_its_end_meanwhile_is_made_anew(bench: MakeBench, poison: Poison) -> None:
    """The batch has seen the key parked; before its tail a redrive takes the last event away."""
    poison.raises["evt_1"] = RetryIn(60)
    one = bench(poison.handlers)
    one.run([of_key("evt_1", "in_1", 0)])

    @poison.handlers.on("customer.created")
    def meanwhile(_event: Event, _tx: Tx) -> None:
        with psycopg.connect(one.url) as other:
            other.execute("DELETE FROM onceflow.parked")
            other.execute("DELETE FROM onceflow.parked_key")

    customer = record(event_body("evt_3", "customer.created", {"id": "cus_1", "object": "customer"}), 2)
    one.run([of_key("evt_2", "in_1", 1), customer])
    assert one.states()["evt_2"] == "parked"
    assert key_rows(one) == [("acct_test/in_1", "retry", "evt_2")]
    assert one.rows("SELECT due_at <= clock_timestamp() AS due FROM onceflow.parked_key") == [{"due": True}]


def test_a_batch_waits_for_the_redrive_that_takes_the_last_event_away(bench: MakeBench, poison: Poison) -> None:
    """The redrive has the key's row: the batch's events come behind a key that is there, never behind one that is gone."""
    poison.raises["evt_1"] = RetryIn(60)
    one = bench(poison.handlers)
    one.run([of_key("evt_1", "in_1", 0)])
    with psycopg.connect(one.url) as redrive:
        redrive.execute("SELECT FROM onceflow.parked_key WHERE order_key = 'acct_test/in_1' FOR UPDATE")
        batch = threading.Thread(target=one.run, args=([of_key("evt_2", "in_1", 1)],))
        batch.start()
        with psycopg.connect(one.url, autocommit=True) as watch:
            while not watch.execute(
                "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%parked_key%'"
            ).fetchall():
                assert batch.is_alive()
        redrive.execute("DELETE FROM onceflow.parked")
        redrive.execute("DELETE FROM onceflow.parked_key WHERE NOT EXISTS (SELECT FROM onceflow.parked)")
    batch.join(30)
    assert parked(one) == ["evt_2"]
    assert key_rows(one) == [("acct_test/in_1", "retry", "evt_2")]


def test_a_key_that_is_no_text_or_too_long_still_keeps_its_order(bench: MakeBench, poison: Poison) -> None:
    long = "x" * 3_000
    poison.raises["evt_1"] = RetryIn(60)
    one = bench(poison.handlers)
    subject: dict[str, Any] = {"id": "in_1", "object": "invoice", "amount_paid": 1, "number": long}
    records = [record(event_body(f"evt_{n}", "invoice.paid", subject), n) for n in (1, 2)]
    for each in records:
        each.key = f"acct_test/{long}".encode()
    one.run(records)
    assert one.states() == {"evt_1": "parked", "evt_2": "parked"}
    [(key, _, _)] = key_rows(one)
    assert key.startswith("sha256:")
