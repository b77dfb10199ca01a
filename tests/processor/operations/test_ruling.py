"""What a person decides about operations: refused where it could do harm, audited, carried out by a worker."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest

from onceflow_processor.operations.effect import Settled
from onceflow_processor.operations.overview import Filter, list_accounts, list_operations, show_operation
from onceflow_processor.operations.ruling import Decider, cancel, let_account_go_on, resolve, retry
from onceflow_processor.tx import Tx
from onceflow_schemas.failure import Refused
from onceflow_schemas.operations.calls import Charge
from onceflow_schemas.operations.evidence import Proof
from tests.processor.operations.conftest import ACCOUNT, Desk, Scripted, in_turn, says
from tests.processor.processor_process import wait_until

LOOK = Decider(who="ada@desk", reason="asked the bank", execute=False)
DO = Decider(who="ada@desk", reason="asked the bank", execute=True)


@pytest.fixture
def connection(desk: Desk) -> Any:
    with psycopg.connect(desk.url) as opened:
        yield opened


def ask(desk: Desk, subject: str = "in_1", **more: Any) -> UUID:
    [asked] = desk.ask(subject, **more)
    return UUID(str(asked))


def into_review(desk: Desk, subject: str = "in_1") -> UUID:
    """An operation whose answer no rule covers."""
    asked = ask(desk, subject)
    with desk.working(Scripted(says(Proof.STRANGE, detail="another amount", http_status=200))):
        desk.wait_for(**{subject: "review"})
    return asked


def audits(desk: Desk) -> list[dict[str, Any]]:
    return desk.rows("SELECT who, action, subject, before, after, reason FROM onceflow.audit ORDER BY id")


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_what_is_in_review_is_settled_as_a_person_says(desk: Desk, connection: Any, outcome: Any) -> None:
    asked = into_review(desk)
    dry = resolve(connection, asked, outcome=outcome, decider=LOOK)
    assert dry.becomes == f"{outcome}, settled by the next worker that knows its effect"
    assert (audits(desk), desk.states()) == ([], {"in_1": "review"})
    resolve(connection, asked, outcome=outcome, decider=DO)
    assert desk.states() == {"in_1": "review"}, "a worker settles it, with its callback"
    assert show_operation(connection, asked).why == (
        f"It was put before a person. A person has decided (ruled_{outcome}): a worker that knows the effect settles it next."
    )
    with pytest.raises(Refused, match="a person has decided already"):
        resolve(connection, asked, outcome="failed", decider=DO)
    sender = Scripted()
    with desk.working(sender):
        desk.wait_for(in_1=outcome)
    assert (sender.sent, sender.looked) == ([], [])
    assert desk.outcomes() == [(f"refund.{outcome}", "in_1")]
    [audit] = audits(desk)
    assert (audit["who"], audit["action"], audit["reason"]) == ("ada@desk", "operation_resolve", "asked the bank")
    assert audit["subject"] == f"operation {asked}"
    assert audit["before"]["review_code"] == "answer_strange"
    [review] = desk.rows("SELECT decided_by, decision, reason FROM onceflow.review")
    assert review == {"decided_by": "ada@desk", "decision": outcome, "reason": "asked the bank"}


def test_a_worker_that_has_it_in_hand_loses_it_to_the_decision(desk: Desk, connection: Any) -> None:
    asked = ask(desk)
    sender = Scripted(says(Proof.UNKNOWN, detail="a timeout"))
    with desk.working(sender):
        desk.wait_for(in_1="unknown")
    desk.change(
        "UPDATE onceflow.operation SET lease_owner = 'asleep', lease_until = clock_timestamp() + interval '1 hour', fence = 7"
    )
    resolve(connection, asked, outcome="succeeded", decider=DO)
    row = desk.operations()["in_1"]
    assert (row["fence"], row["lease_owner"]) == (8, None)
    with desk.working(Scripted()):
        desk.wait_for(in_1="succeeded")


@pytest.mark.parametrize("state", ["requested", "succeeded"])
def test_what_has_not_been_sent_or_is_settled_cannot_be_resolved(desk: Desk, connection: Any, state: str) -> None:
    asked = ask(desk)
    if state == "succeeded":
        with desk.working(Scripted()):
            desk.wait_for(in_1="succeeded")
    for decider in (LOOK, DO):
        with pytest.raises(Refused, match=f"it is {state}"):
            resolve(connection, asked, outcome="failed", decider=decider)
    assert audits(desk) == []


def test_a_decision_about_nothing(connection: Any) -> None:
    nobody = UUID("00000000-0000-5000-8000-000000000001")
    for decide in (cancel, retry):
        with pytest.raises(Refused, match="operation_missing"):
            decide(connection, nobody, decider=DO)
    with pytest.raises(Refused, match="operation_missing"):
        show_operation(connection, nobody)


def test_what_was_never_sent_is_canceled(desk: Desk, connection: Any) -> None:
    asked = ask(desk)
    cancel(connection, asked, decider=LOOK)
    assert audits(desk) == []
    cancel(connection, asked, decider=DO)
    sender = Scripted()
    with desk.working(sender):
        desk.wait_for(in_1="canceled")
    assert sender.sent == []
    assert desk.outcomes() == [("refund.canceled", "in_1")]
    assert [one["action"] for one in audits(desk)] == ["operation_cancel"]


def charge_in_review(desk: Desk) -> UUID:
    @desk.handlers.effect("pay")
    def pay(order: str) -> Charge:
        return Charge(amount=700, currency="usd", payment_method="pm_1", description=order)

    asked = ask(desk, "order-1", effect=pay, order="order-1")
    answers = in_turn(
        says(Proof.DONE, external_id="pi_1", object={"id": "pi_1"}), says(Proof.STRANGE, detail="another amount")
    )
    with desk.working(Scripted(answers)):
        desk.wait_for(**{"order-1": "review"})
    return asked


def test_the_intent_of_a_charge_in_review_is_closed(desk: Desk, connection: Any) -> None:
    asked = charge_in_review(desk)
    cancel(connection, asked, decider=DO)
    sender = Scripted(says(Proof.ENDED, external_id="pi_1", status="canceled"))
    with desk.working(sender):
        desk.wait_for(**{"order-1": "canceled"})
    assert sender.sent == [("order-1", f"{asked}.cancel")]
    [review] = desk.rows("SELECT decision FROM onceflow.review")
    assert review == {"decision": "cancel"}


def test_a_failed_one_is_asked_for_again_with_the_same_calls_under_another_key(desk: Desk, connection: Any) -> None:
    asked = ask(desk, order_key="customer-1")
    with desk.working(Scripted(says(Proof.REFUSED, code="charge_disputed"))):
        desk.wait_for(in_1="failed")
    assert retry(connection, asked, decider=LOOK).again is not None
    assert len(desk.rows("SELECT id FROM onceflow.operation")) == 1
    again = retry(connection, asked, decider=DO).again
    shown = show_operation(connection, asked).read.operation
    other = show_operation(connection, again or asked).read
    assert (other.operation.occurrence, other.operation.order_key) == (2, "customer-1")
    assert other.facts["cause"] == f"operation:{asked}/failed"
    [step], [former] = other.operation.steps, shown.steps
    assert (step.key, step.request["metadata" if "metadata" in step.request else "params"]["metadata"]) == (
        str(again),
        {"onceflow_operation": str(again), "onceflow_deployment": "test"},
    )
    assert {**former.request, "params": None} == {**step.request, "params": None}
    assert str(asked) not in other.steps
    with pytest.raises(Refused, match="occurrence 2 was asked for already"):
        retry(connection, asked, decider=DO)
    sender = Scripted()
    with desk.working(sender):
        wait_until(lambda: ("refund.succeeded", "in_1") in desk.outcomes(), "the second one has succeeded")
    assert sender.sent == [("in_1", str(again))]
    [audit] = audits(desk)
    assert audit["after"] == {"again": str(again), "occurrence": 2}
    with pytest.raises(Refused, match="only what has failed or was canceled"):
        retry(connection, again or asked, decider=DO)


def test_a_callback_that_was_mended_is_tried_at_once_and_nothing_else_can_be_decided(
    desk: Desk, connection: Any
) -> None:
    broken = [True]

    @desk.refunds.settled
    def told(settled: Settled, tx: Tx) -> None:
        if broken:
            raise ValueError("not\ntoday")
        tx.outcome("refund.told", key=settled.subject, data={})

    desk.refunds.callback = told
    asked = ask(desk)
    with desk.working(Scripted()):
        wait_until(lambda: desk.operations()["in_1"]["conclusion"], "its proof is kept")
    desk.change("UPDATE onceflow.operation SET next_attempt_at = clock_timestamp() + interval '1 hour', tries = 7")
    shown = show_operation(connection, asked)
    assert shown.decisions == ("retry",)
    assert shown.why.startswith(
        "The call is done, and nothing of it is sent any more. Its settled callback has failed 7 times, last with:"
        " handler_failed: ValueError: not today. It is tried again at "
    )
    with pytest.raises(Refused, match="what became of it is known \\(done\\)"):
        cancel(connection, asked, decider=DO)
    broken.clear()
    sender = Scripted()
    with desk.working(sender):
        assert retry(connection, asked, decider=LOOK).again is None
        assert retry(connection, asked, decider=DO).becomes.startswith("it is settled as is known")
        desk.wait_for(in_1="succeeded")
    assert (sender.sent, desk.outcomes()) == ([], [("refund.told", "in_1")])
    assert len(desk.rows("SELECT FROM onceflow.operation")) == 1
    assert [(one["action"], one["after"]) for one in audits(desk)] == [("operation_retry", {"settled_again": True})]


def test_a_paused_account_is_tried_at_once(desk: Desk, connection: Any) -> None:
    with pytest.raises(Refused, match="is not paused"):
        let_account_go_on(connection, ACCOUNT, mode="test", decider=DO)
    asked = ask(desk)
    with desk.working(Scripted(says(Proof.UNAUTHORISED, detail="401 Invalid API Key", http_status=401))):
        wait_until(lambda: desk.rows("SELECT FROM onceflow.account_budget WHERE paused_reason IS NOT NULL"), "paused")
    desk.change("UPDATE onceflow.account_budget SET blocked_until = clock_timestamp() + interval '1 hour'")
    [account] = list_accounts(connection)
    assert (account["account"], account["waiting"]) == (ACCOUNT, 1)
    assert "is paused (401 Invalid API Key" in show_operation(connection, asked).why
    with desk.working(Scripted()):
        let_account_go_on(connection, ACCOUNT, mode="test", decider=DO)
        desk.wait_for(in_1="succeeded")
    assert list_accounts(connection)[0]["paused_reason"] is None
    assert [one["action"] for one in audits(desk)] == ["account_go_on"]


def test_lists_by_what_they_are_and_page_by_page(desk: Desk, connection: Any) -> None:
    desk.ask("in_1", "in_2", order_key="customer-1")
    desk.ask("in_3", account="acct_other")
    with desk.working(Scripted()):
        desk.wait_for(in_1="succeeded", in_2="succeeded")

    def subjects(count: int = 10, **wanted: Any) -> list[str]:
        return [row["subject"] for row in list_operations(connection, Filter(**wanted), count=count)]

    assert subjects() == ["in_3", "in_2", "in_1"]
    assert subjects(states=("succeeded",)) == ["in_2", "in_1"]
    assert subjects(states=("requested", "review")) == ["in_3"]
    assert subjects(account="acct_other") == ["in_3"]
    assert subjects(order_key="customer-1") == ["in_2", "in_1"]
    assert subjects(subject="in_2") == ["in_2"]
    assert subjects(effect="other") == []
    [first] = list_operations(connection, Filter(), count=1)
    assert subjects(before=first["seq"], count=1) == ["in_2"]


def test_what_waits_for_another_of_its_order_key_says_so(desk: Desk, connection: Any) -> None:
    first, second = (UUID(str(one)) for one in desk.ask("in_1", "in_2", order_key="customer-1"))
    with desk.working(Scripted(says(Proof.STRANGE, detail="another amount"))):
        desk.wait_for(in_1="review")
    assert f"It waits for {first} (review)" in show_operation(connection, second).why
    shown = show_operation(connection, first)
    assert shown.decisions == ("resolve",)
    assert [one["evidence"] for one in shown.attempts] == ["strange"]
    assert [one["code"] for one in shown.reviews] == ["answer_strange"]
