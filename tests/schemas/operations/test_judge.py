"""What objects prove: every status, every disagreement, and which of several intents is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onceflow_schemas.operations.calls import Call, StripeCall
from onceflow_schemas.operations.evidence import Evidence, Proof
from onceflow_schemas.operations.judge import judge, judge_list
from onceflow_schemas.operations.operation import Operation
from tests.schemas.operations.samples import CAPTURE, CHARGE, REFUND, intent, operation, refund

AUTHORISE = replace(CHARGE, capture=False)
DECLINE = {"code": "card_declined", "decline_code": "insufficient_funds"}
PAY = StripeCall.post(
    "/v1/invoices/in_1/pay",
    lookup={"retrieve": "/v1/invoices/in_1", "statuses": {"paid": "done", "open": "open", "void": "ended"}},
)


def said(call: Call, found: Any, *, step: str = "call", from_lookup: bool = False, **fields: Any) -> Evidence:
    made = operation(call, step=step, **fields)
    return judge(made.present, found, operation=made, from_lookup=from_lookup)


@pytest.mark.parametrize(
    ("status", "create", "confirm", "capture", "cancel"),
    [
        ("requires_payment_method", "done", "open", "open", "open"),
        ("requires_confirmation", "done", "open", "open", "open"),
        ("requires_action", "done", "needs_action", "needs_action", "open"),
        ("processing", "done", "processing", "processing", "open"),
        ("requires_capture", "done", "processing", "open", "open"),
        ("succeeded", "done", "done", "done", "ended"),
        ("canceled", "ended", "ended", "ended", "done"),
        ("requires_dance", "strange", "strange", "strange", "strange"),
        (None, "strange", "strange", "strange", "strange"),
    ],
)
def test_statuses_of_an_intent(status: Any, create: str, confirm: str, capture: str, cancel: str) -> None:
    found = intent(status)
    assert said(CHARGE, found, step="create").proof == create
    assert said(CHARGE, found, step="confirm", external_id="pi_1").proof == confirm
    assert said(CHARGE, found, step="cancel", external_id="pi_1").proof == confirm
    captured = intent(status, id="pi_7", amount_received=900)
    assert said(CAPTURE, captured).proof == capture
    assert said(StripeCall.cancel("pi_7"), captured).proof == cancel


def test_an_authorisation_is_done_when_it_can_be_captured() -> None:
    held = intent("requires_capture", capture_method="manual")
    assert said(AUTHORISE, held, step="confirm").proof is Proof.DONE
    taken = intent("succeeded", capture_method="manual", amount_received=500)
    assert said(AUTHORISE, taken, step="confirm").proof is Proof.DONE
    more = intent("succeeded", capture_method="manual", amount_received=1100)
    assert said(AUTHORISE, more, step="confirm").proof is Proof.STRANGE


def test_a_decline_is_read_from_the_last_payment_error() -> None:
    evidence = said(CHARGE, intent("requires_payment_method", last_payment_error=DECLINE), step="confirm")
    assert (evidence.proof, evidence.code) == (Proof.DECLINED, "insufficient_funds")
    bare = said(CHARGE, intent("requires_payment_method", last_payment_error={}), step="confirm")
    assert (bare.proof, bare.code) == (Proof.DECLINED, "declined")


@pytest.mark.parametrize(
    ("status", "proof"),
    [
        ("succeeded", "done"),
        ("pending", "processing"),
        ("requires_action", "needs_action"),
        ("failed", "ended"),
        ("canceled", "ended"),
        ("reversed", "strange"),
        (None, "strange"),
    ],
)
def test_statuses_of_a_refund(status: str | None, proof: str) -> None:
    evidence = said(REFUND, refund(status))
    assert (evidence.proof, evidence.external_id, evidence.status) == (proof, "re_1", status)


@pytest.mark.parametrize(
    ("status", "proof"), [("paid", "done"), ("open", "open"), ("void", "ended"), ("draft", "strange")]
)
def test_statuses_that_the_user_named(status: str, proof: str) -> None:
    assert said(PAY, {"id": "in_1", "object": "invoice", "status": status}).proof == proof


def test_being_there_is_all_for_a_customer() -> None:
    call = StripeCall.post("/v1/customers", email="ada@example.com")
    made = {"id": "cus_1", "object": "customer", "metadata": refund("")["metadata"]}
    assert said(call, made).proof is Proof.DONE
    raw = said(StripeCall.post("/v1/invoices/in_1/send"), {"id": "in_1", "object": "invoice", "status": "whatever"})
    assert raw.proof is Proof.DONE


@pytest.mark.parametrize("found", [None, [], "ok", {}, {"object": "refund"}, {"id": 7}, refund("succeeded", error={})])
def test_what_is_no_object_proves_nothing(found: Any) -> None:
    assert said(REFUND, found).proof is Proof.UNKNOWN


@pytest.mark.parametrize(
    ("changed", "detail"),
    [
        ({"amount": 5}, "amount is 5, asked was 500"),
        ({"amount": 500.0}, ""),
        ({"currency": "eur"}, "currency is 'eur', asked was 'usd'"),
        ({"charge": "ch_2"}, "charge is 'ch_2', asked was 'ch_1'"),
        ({"object": "charge"}, "the object is a 'charge', not a refund"),
        ({"metadata": {}}, "the object does not carry the operation's id"),
        ({"metadata": None}, "the object does not carry the operation's id"),
        ({"livemode": True}, "the object is of the other mode"),
    ],
)
def test_an_object_that_says_something_else_is_for_a_person(changed: dict[str, Any], detail: str) -> None:
    evidence = said(REFUND, refund("succeeded", **changed))
    assert evidence.detail == detail
    assert (evidence.proof is Proof.STRANGE) == bool(detail)


@pytest.mark.parametrize("received", [0, 1098, 1100, None, "1099"])
def test_the_received_amount_is_compared(received: Any) -> None:
    for step in ("confirm", "cancel"):
        assert said(CHARGE, intent("succeeded", amount_received=received), step=step).proof is Proof.STRANGE


def test_an_answer_about_another_intent_is_strange_and_a_look_at_one_is_not() -> None:
    other = intent("succeeded", id="pi_2")
    assert said(CHARGE, other, step="confirm", external_id="pi_1").proof is Proof.STRANGE
    looked = said(CHARGE, other, step="confirm", external_id="pi_1", from_lookup=True)
    assert (looked.proof, looked.external_id, looked.from_lookup) == (Proof.DONE, "pi_2", True)


def test_what_is_kept_holds_no_personal_data() -> None:
    found = refund("succeeded", receipt_number="7", destination_details={"card": {"last4": "4242"}}, reason="x")
    assert said(REFUND, found).object == {
        "id": "re_1",
        "object": "refund",
        "status": "succeeded",
        "amount": 500,
        "currency": "usd",
        "created": 1_772_366_400,
        "charge": "ch_1",
        "payment_intent": "pi_9",
    }


def listed(made: Operation, *found: dict[str, Any]) -> Evidence:
    return judge_list(made.present, found, operation=made)


def test_lists_of_refunds() -> None:
    made = operation(REFUND)
    assert listed(made).proof is Proof.ABSENT
    assert listed(made, refund("pending")).proof is Proof.PROCESSING
    several = listed(made, refund("succeeded", id="re_2"), refund("failed"))
    assert (several.proof, several.object) == (Proof.SEVERAL, {"ids": ["re_1", "re_2"]})
    assert several.from_lookup


def waiting(object_id: str, created: int, status: str = "requires_payment_method") -> dict[str, Any]:
    return intent(status, id=object_id, created=created)


@pytest.mark.parametrize(
    ("found", "stored", "proof", "kept", "surplus"),
    [
        ([], None, "absent", None, ()),
        ([waiting("pi_1", 5)], None, "done", "pi_1", ()),
        ([waiting("pi_2", 6), waiting("pi_1", 5)], None, "done", "pi_1", ("pi_2",)),
        ([waiting("pi_2", 6), waiting("pi_1", 5)], "pi_2", "done", "pi_2", ("pi_1",)),
        ([waiting("pi_2", 6, "succeeded"), waiting("pi_1", 5)], None, "done", "pi_2", ("pi_1",)),
        ([waiting("pi_2", 6), waiting("pi_1", 5, "canceled")], None, "done", "pi_2", ()),
        ([waiting("pi_2", 6, "canceled"), waiting("pi_1", 5, "canceled")], None, "ended", "pi_1", ()),
        ([waiting("pi_2", 6, "succeeded"), waiting("pi_1", 5, "processing")], None, "several", None, ()),
        ([waiting("pi_2", 6, "odd"), waiting("pi_1", 5)], None, "strange", "pi_2", ()),
    ],
)
def test_lists_of_intents(
    found: list[dict[str, Any]], stored: str | None, proof: str, kept: str | None, surplus: tuple[str, ...]
) -> None:
    evidence = listed(operation(CHARGE, step="create", external_id=stored), *found)
    assert (evidence.proof, evidence.external_id, evidence.surplus) == (proof, kept, surplus)
    assert evidence.from_lookup
