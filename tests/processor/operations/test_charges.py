"""Charges on their whole way: created, confirmed, closed; and intents too many."""

from __future__ import annotations

from dataclasses import replace

from onceflow_processor.handlers import Handlers
from onceflow_processor.operations.effect import Effect, Settled
from onceflow_processor.tx import Tx
from onceflow_schemas.operations.calls import Charge
from onceflow_schemas.operations.evidence import Evidence, Proof
from onceflow_schemas.operations.operation import Operation, Role, Step
from tests.processor.operations.conftest import Desk, Scripted
from tests.processor.processor_process import wait_until


def charge_registry() -> tuple[Handlers, Effect]:
    handlers = Handlers()

    @handlers.effect("charge")
    def charge(amount: int) -> Charge:
        return Charge(amount=amount, currency="usd", payment_method="pm_1", customer="cus_1")

    @charge.settled
    def told(settled: Settled, tx: Tx) -> None:
        tx.outcome(f"charge.{settled.state}", key=settled.subject, data={"intent": settled.external_id})

    handlers.check()
    return handlers, charge


class Intents:
    """Answers of a charge: the create gives one intent, or finds a second one."""

    def __init__(self, *, surplus: tuple[str, ...] = (), closed: Proof = Proof.ENDED) -> None:
        self.surplus = surplus
        self.closed = closed
        self.confirmed: Evidence = self.intent("succeeded", Proof.DONE)

    def intent(self, status: str, proof: Proof) -> Evidence:
        return Evidence(proof=proof, external_id="pi_1", status=status, object={"id": "pi_1", "status": status})

    def __call__(self, step: Step, _operation: Operation) -> Evidence:
        if step.name == Role.CREATE:
            return replace(self.intent("requires_confirmation", Proof.DONE), surplus=self.surplus)
        if step.name == Role.CONFIRM:
            return self.confirmed
        if "pi_2" in step.request["path"]:
            return Evidence(proof=self.closed, external_id="pi_2", status="canceled")
        return self.intent("canceled", Proof.ENDED)


def test_a_charge_is_created_then_confirmed(desk: Desk) -> None:
    handlers, charge = charge_registry()
    desk.handlers = handlers
    [asked] = desk.ask("order_1", effect=charge, amount=500)
    sender = Scripted(Intents())
    with desk.working(sender):
        desk.wait_for(order_1="succeeded")
    assert [key for _, key in sender.sent] == [f"{asked}.create", f"{asked}.confirm"]
    rows = desk.rows("SELECT n, step, name, evidence FROM onceflow.attempt ORDER BY n")
    assert [tuple(row.values()) for row in rows] == [(1, 0, "create", "done"), (2, 1, "confirm", "done")]
    assert desk.outcomes() == [("charge.succeeded", "order_1")]


def test_a_declined_charge_fails_only_after_its_intent_is_closed(desk: Desk) -> None:
    handlers, charge = charge_registry()
    desk.handlers = handlers
    [asked] = desk.ask("order_1", effect=charge, amount=500)
    intents = Intents()
    intents.confirmed = intents.intent("requires_payment_method", Proof.DECLINED)
    sender = Scripted(intents)
    with desk.working(sender):
        desk.wait_for(order_1="failed")
    assert [key for _, key in sender.sent] == [f"{asked}.create", f"{asked}.confirm", f"{asked}.cancel"]
    assert desk.outcomes() == [("charge.failed", "order_1")]


def test_a_surplus_intent_is_cancelled_after_the_charge(desk: Desk) -> None:
    handlers, charge = charge_registry()
    desk.handlers = handlers
    [asked] = desk.ask("order_1", effect=charge, amount=500)
    sender = Scripted(Intents(surplus=("pi_2",)))
    with desk.working(sender):
        desk.wait_for(order_1="succeeded")
        wait_until(lambda: desk.operations()["order_1"]["surplus"] == [], "the surplus is cancelled")
    assert [key for _, key in sender.sent][-1] == f"{asked}.cancel.pi_2"
    row = desk.operations()["order_1"]
    assert (row["state"], row["due_seconds"]) == ("succeeded", None)
    [closing] = desk.rows("SELECT name, evidence FROM onceflow.attempt WHERE step = -1")
    assert closing == {"name": "cancel", "evidence": "ended"}
    assert desk.outcomes() == [("charge.succeeded", "order_1")]


def test_a_surplus_intent_that_charged_goes_to_review(desk: Desk) -> None:
    handlers, charge = charge_registry()
    desk.handlers = handlers
    desk.ask("order_1", effect=charge, amount=500)
    with desk.working(Scripted(Intents(surplus=("pi_2",), closed=Proof.DONE))):
        desk.wait_for(order_1="review")
    [review] = desk.rows("SELECT code FROM onceflow.review")
    assert review["code"] == "several_objects"
    assert desk.operations()["order_1"]["surplus"] == []
