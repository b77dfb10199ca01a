"""Operations that handlers ask for, on a real PostgreSQL: written with their event, once, or refused in the handler."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from onceflow_processor import look_up
from onceflow_processor.event import Event
from onceflow_processor.handlers import Handlers
from onceflow_processor.operations.asked import OperationConflict
from onceflow_processor.records import Partition, Record
from onceflow_processor.tx import Tx
from onceflow_schemas.identity import operation_id
from onceflow_schemas.operations.calls import Charge, StripeCall
from tests.processor import conftest
from tests.processor.conftest import ACCOUNT, TOPIC, Bench, event_body

MakeBench = Callable[[Handlers], Bench]
PARTITION = Partition(TOPIC, 0)
OTHER = Partition(TOPIC, 1)


def record(body: bytes, offset: int, *, partition: int = 0) -> Record:
    """A record under a key of its own, so that no event waits behind one that fails."""
    made = conftest.record(body, offset, partition=partition)
    return replace(made, key=f"{ACCOUNT}/{json.loads(body)['id']}".encode())


def failed(event_id: str, invoice: str = "in_1", amount: int = 500, **subject: Any) -> bytes:
    fields = {"id": invoice, "object": "invoice", "charge": "ch_1", "amount_due": amount, **subject}
    return event_body(event_id, "invoice.payment_failed", fields)


def registry(*, once: bool = False) -> Handlers:
    handlers = Handlers()

    @handlers.effect("refund_fee")
    def refund_fee(charge: str, amount: int) -> StripeCall:
        return StripeCall.post("/v1/refunds", charge=charge, amount=amount)

    @handlers.on("invoice.payment_failed")
    def give_back(event: Event, tx: Tx) -> None:
        invoice = event.object
        tx.outcome("asked", key=event.id, data={})
        if once and not tx.once("fee-back", invoice["id"]):
            return
        tx.request(refund_fee, subject=invoice["id"], charge=invoice["charge"], amount=invoice["amount_due"])

    return handlers


def operations(one: Bench) -> list[dict[str, Any]]:
    return one.rows("SELECT * FROM onceflow.operation ORDER BY seq")


def test_an_operation_is_written_with_its_event(bench: MakeBench) -> None:
    one = bench(registry())
    end = one.run([record(failed("evt_1"), 0), record(event_body("evt_2", "x.y", {"id": "x_1", "object": "x"}), 1)])
    [row] = operations(one)
    made = operation_id(account=ACCOUNT, mode="test", effect="refund_fee", subject="in_1", occurrence=1)
    assert row["id"] == made
    assert (row["account"], row["mode"], row["effect"], row["subject"], row["occurrence"]) == (
        ACCOUNT, "test", "refund_fee", "in_1", 1,
    )  # fmt: skip
    assert (row["state"], row["step"], row["kind"], row["order_key"]) == ("requested", 0, "stripe", None)
    assert row["args"] == {"amount": 500, "charge": "ch_1"}
    assert row["cause"] == f"event:{ACCOUNT}/test/evt_1"
    [step] = row["steps"]
    assert step["key"] == str(made)
    assert step["request"]["params"] == {
        "charge": "ch_1", "amount": 500, "metadata": {"onceflow_operation": str(made)},
    }  # fmt: skip
    assert end.counts[0].operations == 1
    assert one.states() == {"evt_1": "processed", "evt_2": "ignored"}


def test_the_safe_window_starts_when_stripe_made_the_event(bench: MakeBench) -> None:
    one = bench(registry())
    one.run([record(failed("evt_1"), 0)])
    [row] = operations(one)
    assert row["window_from"].timestamp() == 1_767_225_600
    assert row["requested_at"] > row["window_from"]


def test_an_event_from_the_future_starts_the_window_now(bench: MakeBench) -> None:
    one = bench(registry())
    body = json.loads(failed("evt_1"))
    one.run([record(json.dumps({**body, "created": 4_000_000_000}).encode(), 0)])
    [row] = operations(one)
    assert row["window_from"] == row["requested_at"]


def test_the_restores_of_the_database_are_noted(bench: MakeBench) -> None:
    one = bench(registry())
    with psycopg.connect(one.url, autocommit=True) as other:
        other.execute(
            "INSERT INTO onceflow.deployment (id, accounts, mode, system_id, timeline, restores)"
            " VALUES ('d', '{acct_test}', 'test', 's', 1, 3)"
        )
    one.run([record(failed("evt_1"), 0)])
    assert operations(one)[0]["restores"] == 3


def test_rows_have_the_order_of_asking(bench: MakeBench) -> None:
    one = bench(registry())
    subjects = [f"in_{n * 7919 % 100}" for n in range(40)]
    one.run([record(failed(f"evt_{n}", subject), n) for n, subject in enumerate(subjects)])
    assert [row["subject"] for row in operations(one)] == subjects


@pytest.mark.parametrize("apart", [False, True], ids=["in one batch", "in two"])
def test_the_same_again_is_one_operation(bench: MakeBench, *, apart: bool) -> None:
    one = bench(registry())
    first, second = record(failed("evt_1"), 0), record(failed("evt_2"), 1)
    for records in [[first], [second]] if apart else [[first, second]]:
        one.run(records)
    [row] = operations(one)
    assert row["cause"] == f"event:{ACCOUNT}/test/evt_1"
    assert one.states() == {"evt_1": "processed", "evt_2": "processed"}


def test_the_same_again_over_a_new_connection_is_one_operation(bench: MakeBench) -> None:
    one = bench(registry())
    one.run([record(failed("evt_1"), 0)])
    one.known.forget_all()
    end = one.run([record(failed("evt_2"), 1)])
    assert len(operations(one)) == 1
    assert one.states()["evt_2"] == "processed"
    assert end.counts[0].operations == 1


@pytest.mark.parametrize("forget", [False, True], ids=["remembered", "over a new connection"])
def test_other_arguments_are_a_conflict_in_the_handler_and_cost_nobody_else(bench: MakeBench, *, forget: bool) -> None:
    seen: list[str] = []
    handlers = registry()

    @handlers.on("invoice.payment_failed", name="second")
    def again(event: Event, tx: Tx) -> None:
        if event.id != "evt_3":
            return
        try:
            tx.request(handlers.effects["refund_fee"], subject="in_1", charge="ch_1", amount=1)
        except OperationConflict as conflict:
            seen.append(conflict.code)
            tx.outcome("conflict", key="k", data={})

    one = bench(handlers)
    one.run([record(failed("evt_1"), 0)])
    if forget:
        one.known.forget_all()
    one.run([record(failed("evt_2", amount=501), 1), record(failed("evt_3"), 2), record(failed("evt_4", "in_4"), 3)])
    assert one.states() == {"evt_1": "processed", "evt_2": "quarantined", "evt_3": "processed", "evt_4": "processed"}
    assert one.quarantine() == {1: "operation_conflict"}
    assert [row["args"]["amount"] for row in operations(one)] == [500, 500]
    assert ("conflict", "k") in one.outcomes()
    assert set(seen) == {"operation_conflict"}


def test_what_a_failed_event_asked_for_is_not_written(bench: MakeBench) -> None:
    handlers = registry()

    @handlers.on("invoice.payment_failed", name="second")
    def fail(event: Event, tx: Tx) -> None:
        if event.id == "evt_1":
            tx.execute("SELECT 1")
            raise LookupError

    one = bench(handlers)
    one.run([record(failed("evt_1"), 0), record(failed("evt_2"), 1)])
    [row] = operations(one)
    assert row["cause"] == f"event:{ACCOUNT}/test/evt_2"
    assert one.states() == {"evt_1": "quarantined", "evt_2": "processed"}


@pytest.mark.parametrize(
    ("amount", "code"),
    [(-5, "amount_refused"), (1.5, "amount_refused"), (0, "amount_refused"), ("5", "amount_refused")],
)
def test_what_cannot_be_asked_for_costs_its_own_event(bench: MakeBench, amount: Any, code: str) -> None:
    handlers = Handlers()
    refund = handlers.use(lambda amount: StripeCall.refund(charge="ch_1", amount=amount), name="refund")

    @handlers.on("invoice.payment_failed")
    def give_back(event: Event, tx: Tx) -> None:
        tx.request(refund, subject=event.id, amount=amount if event.id == "evt_2" else 1)

    one = bench(handlers)
    one.run([record(failed(f"evt_{n}"), n) for n in range(5)])
    assert one.quarantine() == {2: code}
    assert len(operations(one)) == 4


def test_a_charge_has_three_frozen_steps(bench: MakeBench) -> None:
    handlers = Handlers()

    @handlers.effect("charge_order")
    def charge_order(order: str, amount: int) -> Charge:
        return Charge(amount=amount, currency="usd", payment_method="pm_1", description=order)

    @handlers.on("invoice.payment_failed")
    def ask(event: Event, tx: Tx) -> None:
        tx.request(charge_order, subject=event.id, order_key="cus_1", order="o-1", amount=100)

    one = bench(handlers)
    one.run([record(failed("evt_1"), 0)])
    [row] = operations(one)
    assert [step["name"] for step in row["steps"]] == ["create", "confirm", "cancel"]
    assert row["order_key"] == "cus_1"


class Foreign:
    """A transaction of somebody else that stays open."""

    def __init__(self, url: str, query: str, parameters: dict[str, Any]) -> None:
        self.connection = psycopg.connect(url)
        self.connection.execute(query.encode(), parameters)

    def __enter__(self) -> psycopg.Connection[Any]:
        return self.connection

    def __exit__(self, *error: object) -> None:
        self.connection.close()


FACT = "INSERT INTO onceflow.fact (namespace, key, cause) VALUES ('fee-back', %(subject)s, 'app:x')"
OPERATION = (
    "INSERT INTO onceflow.operation (id, account, mode, effect, subject, occurrence, kind, args, args_sha256, cause, steps,"
    " api_version, window_from) VALUES (%(id)s, 'acct_test', 'test', 'refund_fee', %(subject)s, 1, 'stripe', '{}', '', 'app:x',"
    " '[]', 'v', now())"
)


@pytest.mark.parametrize("query", [FACT, OPERATION], ids=["fact", "operation"])
def test_what_an_open_transaction_holds_holds_up_one_partition_and_no_other(bench: MakeBench, query: str) -> None:
    one = bench(registry(once=query == FACT))
    held = operation_id(account=ACCOUNT, mode="test", effect="refund_fee", subject="in_3", occurrence=1)
    records = [record(failed(f"evt_{n}", f"in_{n}"), n // 2, partition=n % 2) for n in range(40)]
    begun = time.monotonic()
    with Foreign(one.url, query, {"subject": "in_3", "id": held}) as foreign:
        end = one.run(records)
        took_seconds = time.monotonic() - begun
        assert end.held == {OTHER: 1}
        assert "held by a transaction that has not ended" in end.reasons[OTHER]
        assert "in_3" not in end.reasons[OTHER]
        assert one.states() == dict.fromkeys([*(f"evt_{n}" for n in range(0, 40, 2)), "evt_1"], "processed")
        assert took_seconds < 2.0, "the limit for other locks is two seconds here"
        foreign.rollback()
    assert one.run_again().held == {}
    assert len(one.states()) == 40
    assert len(operations(one)) == 40
    assert one.quarantine() == {}


def test_many_held_facts_are_found_together(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_up, "HELD_MAX", 3)
    one = bench(registry(once=True))
    records = [record(failed(f"evt_{n}", f"in_{n}"), 0, partition=n) for n in range(8)]
    with psycopg.connect(one.url) as foreign:
        for n in (1, 2, 4, 5, 7):
            foreign.execute(FACT.encode(), {"subject": f"in_{n}"})
        end = one.run(records)
        assert set(end.held) == {Partition(TOPIC, n) for n in (1, 2, 4, 5, 7)}
        assert sorted(one.states()) == ["evt_0", "evt_3", "evt_6"]
        foreign.commit()
    assert one.run_again().held == {}
    assert len(one.states()) == 8
    assert sorted(row["subject"] for row in operations(one)) == ["in_0", "in_3", "in_6"]


def test_a_lock_that_has_to_do_with_neither_is_waited_for_as_before(bench: MakeBench) -> None:
    one = bench(registry(once=True))
    one.begin(PARTITION)
    with Foreign(one.url, "SELECT * FROM onceflow.progress FOR UPDATE", {}) as foreign:
        tries: list[float] = []

        def wait(_seconds: float) -> None:
            tries.append(time.monotonic())
            foreign.rollback()

        one.wait = wait
        end = one.run([record(failed("evt_1"), 0)])
    assert len(tries) == 1
    assert end.held == {}
    assert len(operations(one)) == 1


HINTED = "6f1a2f0e-5a43-5d0c-9a3e-0d6f6e636566"


def charged(event_id: str, *, key: str) -> bytes:
    charge = {"id": "ch_1", "object": "charge", "status": "succeeded"}
    return event_body(event_id, "charge.refunded", charge, request={"id": "req_1", "idempotency_key": key})


def test_hints_are_written_for_every_first_event(bench: MakeBench) -> None:
    one = bench(registry())
    one.run([record(failed("evt_0"), 0)])
    [asked] = [str(row["id"]) for row in operations(one)]
    refund = {"id": "re_1", "object": "refund", "status": "succeeded", "metadata": {"onceflow_operation": HINTED}}
    ignored = event_body("evt_1", "refund.created", refund)
    # Its key looks like an id of ours, but nothing else says so.
    stray = charged("evt_3", key=HINTED)
    end = one.run(
        [record(ignored, 1), record(ignored, 2), record(charged("evt_2", key=f"{asked}.confirm"), 3), record(stray, 4)]
    )
    rows = one.rows("SELECT * FROM onceflow.operation_hint ORDER BY event")
    assert [
        (str(row["operation_id"]), row["event"], row["object"], row["object_id"], row["status"]) for row in rows
    ] == [
        (HINTED, f"{ACCOUNT}/test/evt_1", "refund", "re_1", "succeeded"),
        (asked, f"{ACCOUNT}/test/evt_2", "charge", "ch_1", "succeeded"),
    ]
    assert rows[0]["created"].timestamp() == 1_767_225_600
    assert rows[0]["taken_at"] is None
    assert end.counts[0].hints == 3


@pytest.mark.parametrize("swallows", [(), Exception, BaseException])
def test_of_two_wishes_in_one_batch_the_first_is_committed_before_the_second_is_a_conflict(
    bench: MakeBench, swallows: type[BaseException] | tuple[()]
) -> None:
    handlers = Handlers()
    refund = handlers.use(lambda amount: StripeCall.refund(charge="ch_1", amount=amount), name="refund")

    @handlers.on("invoice.payment_failed")
    def ask(event: Event, tx: Tx) -> None:
        try:
            tx.request(refund, subject="in_1", amount=event.object["amount_due"])
        except OperationConflict:
            raise
        except swallows:
            tx.outcome("swallowed", key="k", data={})

    one = bench(handlers)
    end = one.run([record(failed(f"evt_{n}", amount=500 + (n == 2)), n) for n in range(5)])
    assert one.quarantine() == {2: "operation_conflict"}
    assert one.outcomes() == []
    assert len(operations(one)) == 1
    assert len(end.counts) == 2


def test_a_wish_that_was_never_committed_is_no_reason_for_a_conflict(bench: MakeBench) -> None:
    """The first event fails at COMMIT only; the second one's wish must not be lost for it."""
    handlers = registry()

    @handlers.on("invoice.payment_failed", name="deferred")
    def deferred(event: Event, tx: Tx) -> None:
        tx.execute("INSERT INTO public.child VALUES (%s)", [7 if event.id == "evt_1" else 1])

    one = bench(handlers)
    with psycopg.connect(one.url, autocommit=True) as setup:
        setup.execute("CREATE TABLE public.parent (id int PRIMARY KEY)")
        setup.execute("INSERT INTO public.parent VALUES (1)")
        setup.execute("CREATE TABLE public.child (id int REFERENCES public.parent DEFERRABLE INITIALLY DEFERRED)")
    one.run([record(failed("evt_0", "in_0"), 0), record(failed("evt_1", amount=7), 1), record(failed("evt_2"), 2)])
    assert one.quarantine() == {1: "effect_refused"}
    assert [(row["subject"], row["args"]["amount"]) for row in operations(one)] == [("in_0", 500), ("in_1", 500)]
