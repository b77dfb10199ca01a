"""Handlers with an order on a real PostgreSQL: older events never lower newer state, and no batch waits crosswise."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from onceflow_processor.event import Event
from onceflow_processor.handlers import Handlers
from onceflow_processor.tx import Tx
from onceflow_schemas.failure import Misconfigured
from tests.processor.conftest import ACCOUNT, Bench, event_body, record

MakeBench = Callable[[Handlers], Bench]
T0 = 1_767_225_600
UPDATED, CREATED = "customer.subscription.updated", "customer.subscription.created"


def told(event_id: str, status: str, *, second: int = 0, subject: str = "sub_1", **extra: Any) -> bytes:
    """An event about a subscription; ``before`` are its previous attributes."""
    data: dict[str, Any] = {
        "object": {"id": subject, "object": "subscription", "status": status, **extra.pop("more", {})}
    }
    if "before" in extra:
        data["previous_attributes"] = extra.pop("before")
    fields = {"type": UPDATED, **extra}
    return event_body(event_id, fields.pop("type"), {}, created=T0 + second, data=data, **fields)


def state_and_transitions() -> Handlers:
    """A table with the state of each object, and an outcome for each transition."""
    handlers = Handlers()

    @handlers.on("customer.subscription.*", order="latest", name="state")
    def state(event: Event, tx: Tx) -> None:
        tx.execute(
            "INSERT INTO public.ledger (event_id, note) VALUES (%s, %s) ON CONFLICT (event_id) DO UPDATE SET note = EXCLUDED.note",
            [event.object["id"], event.object["status"]],
        )

    @handlers.on("customer.subscription.*", order="each", name="each")
    def each(event: Event, tx: Tx) -> None:
        tx.outcome(event.type, key=event.object["id"], data={"stale": event.is_stale, "status": event.object["status"]})

    return handlers


def state_of(one: Bench, subject: str = "sub_1") -> str | None:
    rows = one.rows("SELECT note FROM public.ledger WHERE event_id = %s", subject)
    return rows[0]["note"] if rows else None


def guard_of(one: Bench, subject: str = "sub_1") -> dict[str, Any]:
    [row] = one.rows("SELECT * FROM onceflow.object_guard WHERE object_id = %s", subject)
    return row


def stale_in(one: Bench) -> dict[str, bool | None]:
    return {row["event_id"]: row["is_stale"] for row in one.rows("SELECT event_id, is_stale FROM onceflow.inbox")}


def test_an_older_event_is_marked_and_lowers_nothing(bench: MakeBench) -> None:
    one = bench(state_and_transitions())
    one.run([record(told("evt_B", "active", second=1), 0)])
    end = one.run([record(told("evt_A", "incomplete", type=CREATED), 1)])
    assert state_of(one) == "active"
    assert one.states() == {"evt_A": "processed", "evt_B": "processed"}
    assert stale_in(one) == {"evt_A": True, "evt_B": None}
    assert sorted(type_ for type_, _ in one.outcomes()) == [CREATED, UPDATED]
    assert end.counts[0].ordered == {"older": 1}
    row = guard_of(one)
    assert (row["account"], row["mode"], row["kind"], row["event_id"]) == (ACCOUNT, "test", "subscription", "evt_B")
    assert (row["status"], row["tombstone"], row["created"].timestamp()) == ("active", False, T0 + 1)


def test_events_of_one_batch_see_each_other(bench: MakeBench) -> None:
    one = bench(state_and_transitions())
    one.run([record(told("evt_B", "active", second=1), 0), record(told("evt_A", "incomplete"), 1)])
    assert state_of(one) == "active"
    assert stale_in(one) == {"evt_A": True, "evt_B": None}


def test_previous_is_what_was_applied_before(bench: MakeBench) -> None:
    handlers, seen = Handlers(), list[Any]()

    @handlers.on(UPDATED, order="each")
    def look(event: Event, _tx: Tx) -> None:
        previous = event.previous
        seen.append(None if previous is None else (previous.event_id, previous.status, previous.type))

    one = bench(handlers)
    one.run([record(told("evt_2", "active", second=2), 0), record(told("evt_3", "past_due", second=3), 1)])
    one.run([record(told("evt_1", "incomplete", second=1), 2), record(told("evt_4", "active", second=4), 3)])
    assert seen == [None, ("evt_2", "active", UPDATED), ("evt_3", "past_due", UPDATED), ("evt_3", "past_due", UPDATED)]


def test_the_same_state_again_is_not_met_by_latest_but_moves_the_time(bench: MakeBench) -> None:
    handlers, met = Handlers(), list[str]()

    @handlers.on(UPDATED, order="latest")
    def look(event: Event, _tx: Tx) -> None:
        met.append(event.id)

    one = bench(handlers)
    one.run([record(told("evt_1", "active"), 0), record(told("evt_2", "active", second=5), 1)])
    one.run([record(told("evt_3", "past_due", second=3), 2)])
    assert met == ["evt_1"]
    assert stale_in(one) == {"evt_1": None, "evt_2": False, "evt_3": True}
    assert guard_of(one)["event_id"] == "evt_2"


def test_a_change_under_two_event_ids_is_met_once(bench: MakeBench) -> None:
    """Stripe may make two Event objects of one change."""
    one = bench(state_and_transitions())
    twice: dict[str, Any] = {"before": {"status": "incomplete"}, "request": {"id": "req_1", "idempotency_key": None}}
    bodies = [told(f"evt_{n}", "active", **twice) for n in range(4)]
    one.run([record(bodies[0], 0), record(bodies[1], 1)])
    end = one.run([record(bodies[2], 2)])
    one.run([record(told("evt_9", "active", **(twice | {"before": {"status": "past_due"}})), 3)])
    assert len(one.outcomes()) == 2
    assert end.counts[0].ordered == {"same": 1, "repeated": 1}
    facts = one.rows("SELECT * FROM onceflow.fact WHERE namespace = 'onceflow.transition'")
    assert len(facts) == 2


def test_a_handler_without_order_meets_everything(bench: MakeBench) -> None:
    handlers, met = state_and_transitions(), list[tuple[str, bool]]()

    @handlers.on(UPDATED)
    def look(event: Event, _tx: Tx) -> None:
        met.append((event.id, event.is_stale))

    one = bench(handlers)
    one.run([record(told("evt_2", "active", second=2), 0), record(told("evt_1", "incomplete", second=1), 1)])
    one.run([record(told("evt_3", "active", second=2), 2)])
    assert met == [("evt_2", False), ("evt_1", True), ("evt_3", False)]


def test_types_without_an_order_touch_no_guard(bench: MakeBench) -> None:
    handlers = state_and_transitions()

    @handlers.on("invoice.paid")
    def paid(_event: Event, _tx: Tx) -> None:
        pass

    one = bench(handlers)
    statements: list[str] = []
    execute = one.connection.execute

    def watch(query: Any, *arguments: Any, **options: Any) -> Any:
        statements.append(query.decode())
        return execute(query, *arguments, **options)

    one.connection.execute = watch  # type: ignore[method-assign]
    one.run([record(event_body("evt_1", "invoice.paid", {"id": "in_1", "object": "invoice"}), 0)])
    assert one.states() == {"evt_1": "processed"}
    assert statements
    assert not [text for text in statements if "object_guard" in text]
    assert one.rows("SELECT * FROM onceflow.object_guard") == []


def test_an_object_without_an_id_has_no_order(bench: MakeBench) -> None:
    handlers, met = Handlers(), list[str]()

    @handlers.on("balance.available", order="latest")
    def look(event: Event, _tx: Tx) -> None:
        met.append(event.id)

    one = bench(handlers)
    for n, second in enumerate([5, 1]):
        body = event_body(f"evt_{n}", "balance.available", {"object": "balance"}, created=T0 + second)
        one.run([record(body, n)])
    assert met == ["evt_0", "evt_1"]


@pytest.mark.parametrize("touches", [False, True])
def test_an_event_that_fails_does_not_advance_the_guard(bench: MakeBench, *, touches: bool) -> None:
    handlers = state_and_transitions()

    @handlers.on(UPDATED, name="fails")
    def fails(event: Event, tx: Tx) -> None:
        if event.id == "evt_bad":
            if touches:
                tx.execute("SELECT 1")
            message = "no"
            raise ValueError(message)

    one = bench(handlers)
    one.run(
        [
            record(told("evt_0", "incomplete"), 0),
            record(told("evt_1", "incomplete", second=1, subject="sub_2"), 1),
            record(told("evt_bad", "canceled", second=9), 2),
            record(told("evt_2", "active", second=2), 3),
            record(told("evt_3", "active", second=2, subject="sub_2"), 4),
        ]
    )
    # What comes behind the failed one waits for it, and leaves no trace either.
    assert (one.states()["evt_bad"], one.states()["evt_2"]) == ("quarantined", "parked")
    assert (state_of(one), state_of(one, "sub_2")) == ("incomplete", "active")
    assert (guard_of(one)["event_id"], guard_of(one, "sub_2")["event_id"]) == ("evt_0", "evt_3")
    assert (guard_of(one)["tombstone"], stale_in(one)["evt_2"]) == (False, None)


def test_an_object_of_which_nothing_went_well_has_an_empty_guard(bench: MakeBench) -> None:
    handlers = Handlers()

    @handlers.on(UPDATED, order="latest")
    def fails(_event: Event, _tx: Tx) -> None:
        message = "no"
        raise ValueError(message)

    one = bench(handlers)
    one.run([record(told("evt_1", "active"), 0)])
    assert guard_of(one)["created"] is None
    with psycopg.connect(one.url) as person:
        person.execute("DELETE FROM onceflow.parked_key")
    one.handlers = state_and_transitions()
    one.run([record(told("evt_2", "active"), 1)])
    assert state_of(one) == "active"
    assert guard_of(one)["event_id"] == "evt_2"


def test_a_tie_is_counted_and_the_later_record_wins(bench: MakeBench) -> None:
    one = bench(state_and_transitions())
    end = one.run([record(told("evt_1", "past_due"), 0), record(told("evt_2", "active"), 1)])
    assert end.counts[0].ordered == {"tie": 1}
    assert state_of(one) == "active"
    assert stale_in(one) == {"evt_1": None, "evt_2": None}


def test_what_is_deleted_stays_deleted(bench: MakeBench) -> None:
    one = bench(state_and_transitions())
    one.run([record(told("evt_1", "canceled", type="customer.subscription.deleted"), 0)])
    one.run([record(told("evt_2", "active", second=60), 1)])
    assert state_of(one) == "canceled"
    assert guard_of(one)["tombstone"] is True


def test_two_processes_one_after_the_other_see_one_guard(bench: MakeBench) -> None:
    """The newer event is in one partition, the older in another, and nothing is remembered between them but the row."""
    one = bench(state_and_transitions())
    newer, older = record(told("evt_B", "active", second=1), 0), record(told("evt_A", "incomplete"), 0, partition=1)
    with psycopg.connect(one.url) as killed:
        two = Bench(one.url, killed, one.handlers)
        two.run([newer])
    three = Bench(one.url, psycopg.connect(one.url), one.handlers, positions=dict(two.positions))
    three.run([older])
    three.connection.close()
    assert state_of(one) == "active"
    assert stale_in(one) == {"evt_A": True, "evt_B": None}


@pytest.mark.parametrize("newer_first", [True, False])
def test_two_batches_with_one_object_wait_for_each_other(bench: MakeBench, *, newer_first: bool) -> None:
    """The second batch sees what the first one applied, although it began before that was committed."""
    handlers, inside, go_on = state_and_transitions(), threading.Event(), threading.Event()

    @handlers.on(UPDATED, name="holds")
    def holds(event: Event, _tx: Tx) -> None:
        if event.id == "evt_first":
            inside.set()
            assert go_on.wait(10)

    one, two = bench(handlers), bench(handlers)
    seconds = (2, 1) if newer_first else (1, 2)
    first = record(told("evt_first", f"at {seconds[0]}", second=seconds[0]), 0)
    second = record(told("evt_second", f"at {seconds[1]}", second=seconds[1]), 0, partition=1)
    held = threading.Thread(target=lambda: one.run([first]))
    waiting = threading.Thread(target=lambda: two.run([second]))
    held.start()
    assert inside.wait(10)
    waiting.start()
    _wait_for_a_lock(one)
    go_on.set()
    held.join(20)
    waiting.join(20)
    assert one.states() == {"evt_first": "processed", "evt_second": "processed"}
    assert state_of(one) == "at 2"
    assert stale_in(one)["evt_second"] is (True if newer_first else None)


def _wait_for_a_lock(one: Bench) -> None:
    for _ in range(1_000):
        if one.rows("SELECT FROM pg_locks WHERE NOT granted"):
            return
        threading.Event().wait(0.01)
    message = "the second batch does not wait"
    raise AssertionError(message)


def test_batches_that_meet_crosswise_do_not_deadlock(bench: MakeBench) -> None:
    one, two = bench(state_and_transitions()), bench(state_and_transitions())
    subjects = [f"sub_{n}" for n in range(40)]

    def run(which: Bench, partition: int, order: list[str]) -> None:
        for turn in range(5):
            second = turn * 2 + partition
            records = [
                record(
                    told(f"evt_{partition}_{turn}_{name}", str(second), second=second, subject=name),
                    turn * len(order) + place,
                    partition=partition,
                )
                for place, name in enumerate(order)
            ]
            which.run(records)

    threads = [
        threading.Thread(target=run, args=(one, 0, subjects)),
        threading.Thread(target=run, args=(two, 1, subjects[::-1])),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert {state_of(one, name) for name in subjects} == {"9"}
    assert set(one.states().values()) == {"processed"}
    [deadlocks] = one.rows("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    assert deadlocks["deadlocks"] == 0


def test_the_last_day_of_the_calendar_can_be_read_in_every_time_zone(bench: MakeBench) -> None:
    one = bench(state_and_transitions())
    one.connection.execute("SET timezone = 'Pacific/Kiritimati'")
    one.connection.commit()
    last_second = 253_402_300_799 - T0
    one.run([record(told("evt_1", "active", second=last_second), 0)])
    one.run([record(told("evt_2", "past_due", second=last_second - 1), 1)])
    assert state_of(one) == "active"


@pytest.mark.parametrize("order", ["newest", None, 5, ["latest"], "LATEST"])
def test_an_order_that_does_not_exist_is_told_at_start(order: Any) -> None:
    handlers = Handlers()
    handlers.on("invoice.paid", order=order, name="paid")(lambda _event, _tx: None)
    with pytest.raises(Misconfigured) as found:
        handlers.check()
    assert "order= of the handler 'paid'" in str(found.value)
    assert "'as_is' or 'latest' or 'each'" in str(found.value)
