"""``tx.book`` on a real PostgreSQL: differences add up to the highest total, whatever comes in whatever order."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from onceflow import attach
from onceflow_processor.event import Event
from onceflow_processor.handlers import Handlers
from onceflow_processor.tx import Tx
from onceflow_schemas.failure import Refused
from tests.processor.conftest import ACCOUNT, Bench, event_body, record

MakeBench = Callable[[Handlers], Bench]


def refunded(event_id: str, total: Any, charge: str = "ch_1", *, intent: str | None = None) -> bytes:
    subject = {"id": charge, "object": "charge", "payment_intent": intent, "sum": total}
    return event_body(event_id, "charge.refunded", subject)


def booking() -> Handlers:
    handlers = Handlers()

    @handlers.on("charge.refunded")
    def reverse(event: Event, tx: Tx) -> None:
        difference = tx.book("refunded", event.object["id"], total=event.object["sum"])
        tx.execute("INSERT INTO public.ledger (event_id, note) VALUES (%s, %s)", [event.id, str(difference)])

    return handlers


def differences(one: Bench, charge: str = "ch_1") -> dict[str, int]:
    rows = one.rows("SELECT cause, difference FROM onceflow.booking WHERE key = %s", charge)
    return {row["cause"].rpartition("/")[2]: row["difference"] for row in rows}


def total(one: Bench, charge: str = "ch_1") -> int:
    [row] = one.rows("SELECT total FROM onceflow.booked WHERE namespace = 'refunded' AND key = %s", charge)
    return int(row["total"])


def booked(one: Bench) -> int:
    """What the handlers were told to book, all in all."""
    return sum(int(row["note"]) for row in one.rows("SELECT note FROM public.ledger"))


def test_the_difference_is_booked_once_in_any_order(bench: MakeBench) -> None:
    """Every order of three totals, each told twice under ids of their own, and with the one in the middle missing."""
    one = bench(booking())
    offset = 0
    for number, order in enumerate([*itertools.permutations([1000, 1500, 2500]), (1000, 2500), (2500, 1000)]):
        charge = f"ch_{number}"
        for turn, sum_ in enumerate([*order, *order]):
            one.run([record(refunded(f"evt_{number}_{turn}", sum_, charge), offset)])
            offset += 1
        assert total(one, charge) == sum(differences(one, charge).values()) == 2500
    assert booked(one) == 2500 * 8
    assert set(one.states().values()) == {"processed"}


def test_one_batch_books_as_many_batches_do(bench: MakeBench) -> None:
    one = bench(booking())
    one.run([record(refunded(f"evt_{n}", sum_), n) for n, sum_ in enumerate([1500, 1000, 2500, 2500])])
    assert differences(one) == {"evt_0": 1500, "evt_2": 1000}
    assert [row["note"] for row in one.rows("SELECT note FROM public.ledger ORDER BY event_id")] == [
        "1500", "0", "1000", "0",
    ]  # fmt: skip


def test_one_event_may_book_twice_and_nothing_is_a_total_too(bench: MakeBench) -> None:
    handlers, told = Handlers(), list[int]()

    @handlers.on("charge.refunded")
    def reverse(_event: Event, tx: Tx) -> None:
        told.extend(tx.book("refunded", "ch_1", total=sum_) for sum_ in (0, 0, 5, 3, 9))

    one = bench(handlers)
    one.run([record(refunded("evt_1", 0), 0)])
    assert told == [0, 0, 5, 0, 4]
    assert differences(one) == {"evt_1": 9}


@pytest.mark.parametrize("touches", [False, True])
def test_what_a_failing_event_booked_is_booked_by_the_next(bench: MakeBench, *, touches: bool) -> None:
    handlers = booking()

    @handlers.on("charge.refunded", name="second")
    def fails(event: Event, tx: Tx) -> None:
        if event.id == "evt_bad":
            if touches:
                tx.execute("SELECT 1")
            message = "no"
            raise ValueError(message)

    one = bench(handlers)
    # Under a key of its own, or the next one would be parked behind it.
    bodies = [refunded("evt_1", 5), refunded("evt_bad", 9, intent="pi_1"), refunded("evt_2", 7)]
    one.run([record(body, n) for n, body in enumerate(bodies)])
    assert one.states() == {"evt_1": "processed", "evt_bad": "quarantined", "evt_2": "processed"}
    assert differences(one) == {"evt_1": 5, "evt_2": 2}
    assert booked(one) == 7


def test_a_batch_that_is_rolled_back_books_nothing(bench: MakeBench) -> None:
    """The connection is lost before COMMIT; the next process reads the record again."""
    handlers, dies = booking(), [True]

    @handlers.on("charge.refunded", name="dies")
    def die(_event: Event, tx: Tx) -> None:
        if dies:
            dies.clear()
            with psycopg.connect(one.url, autocommit=True) as other:
                pid = tx.connection.info.backend_pid
                other.execute("SELECT pg_terminate_backend(%s)", [pid])
            tx.execute("SELECT 1")

    one = bench(handlers)
    with pytest.raises(Exception, match=r"database|terminat"):
        one.run([record(refunded("evt_1", 5), 0)])
    assert one.rows("SELECT * FROM onceflow.booked") == []
    with psycopg.connect(one.url) as one.connection:
        one.known.forget_all()
        one.run_again()
    assert differences(one) == {"evt_1": 5}


def test_batches_of_two_partitions_book_together(bench: MakeBench) -> None:
    """Two processes, the same charges in opposite order, every total told to both."""
    one, two = bench(booking()), bench(booking())
    charges = [f"ch_{n}" for n in range(8)]

    def run(which: Bench, partition: int, order: list[str]) -> None:
        for turn in range(6):
            sums = [(charge, (turn + 1) * 100 + partition) for charge in order]
            which.run(
                [
                    record(
                        refunded(f"evt_{partition}_{turn}_{charge}", sum_, charge), turn * 8 + n, partition=partition
                    )
                    for n, (charge, sum_) in enumerate(sums)
                ]
            )

    threads = [
        threading.Thread(target=run, args=(one, 0, charges)),
        threading.Thread(target=run, args=(two, 1, charges[::-1])),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert set(one.states().values()) == {"processed"}
    assert {total(one, charge) for charge in charges} == {601}
    assert booked(one) == 601 * 8


def test_big_totals_and_impossible_ones(bench: MakeBench) -> None:
    """Totals have 64 bits; what does not fit costs its own event, with the reason, and no other."""
    one = bench(booking())
    totals: list[Any] = [13_580_246_790, 2**63 - 1, 2**63, -1, 1.5, "100", True, None]
    one.run([record(refunded(f"evt_{n}", sum_, f"ch_{n}"), n) for n, sum_ in enumerate(totals)])
    assert one.quarantine() == dict.fromkeys(range(2, 8), "effect_refused")
    assert (total(one, "ch_0"), total(one, "ch_1")) == (13_580_246_790, 2**63 - 1)
    one.run([record(refunded("evt_9", 2**63 - 1, "ch_0"), 8)])
    assert differences(one, "ch_0") == {"evt_0": 13_580_246_790, "evt_9": 2**63 - 1 - 13_580_246_790}
    [row] = one.rows('SELECT detail FROM onceflow.quarantine WHERE "offset" = 3')
    assert "-1 is no whole number from 0 to 2**63 - 1" in row["detail"]


@pytest.mark.parametrize("key", [("",), (), ("refunded", ""), ("onceflow.x", "ch_1"), ("a", "b" * 1025), ("a", "\x00")])
def test_a_key_that_cannot_be_is_refused(bench: MakeBench, key: tuple[str, ...]) -> None:
    handlers = Handlers()

    @handlers.on("charge.refunded")
    def reverse(_event: Event, tx: Tx) -> None:
        tx.book(*(key or ("refunded",)), total=1)

    one = bench(handlers)
    one.run([record(refunded("evt_1", 1), 0)])
    assert one.quarantine() == {0: "effect_refused"}


def test_an_application_cannot_book(bench: MakeBench) -> None:
    """A total is locked until COMMIT, and an application's transaction may be long."""
    one = bench(booking())
    with psycopg.connect(one.url) as connection:
        connection.execute(
            "INSERT INTO onceflow.deployment (id, accounts, mode, system_id, timeline) VALUES ('d', %s, 'test', 's', 1)",
            [[ACCOUNT]],
        )
        with pytest.raises(Refused):
            attach(connection, cause="order:1").book("refunded", "ch_1", total=5)
