"""What moves write beside the state: ids, surplus, reasons, deadlines, pauses, reviews, what is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onceflow_schemas.operations.advance import advance
from onceflow_schemas.operations.calls import Call
from onceflow_schemas.operations.evidence import Proof
from onceflow_schemas.operations.limits import LIMITS
from onceflow_schemas.operations.moves import Change
from onceflow_schemas.operations.operation import State
from tests.schemas.operations.samples import CHARGE, HOUR, MINUTE, NOW, OFF_SESSION, operation
from tests.schemas.operations.test_advance import evidence_of, sample


def test_a_created_intent_is_stored_and_its_surplus_named() -> None:
    change = advance(
        sample("create", "1ST"), evidence_of(Proof.DONE, "1ST", external_id="pi_2", surplus=("pi_3",)), now=NOW
    )
    assert (change.external_id, change.surplus, change.step, change.tries) == ("pi_2", ("pi_3",), 1, 0)
    assert change.next_attempt_at == NOW


def test_the_stored_intent_is_kept_when_another_one_was_created() -> None:
    stored = replace(sample("create", "1ST"), external_id="pi_1")
    change = advance(stored, evidence_of(Proof.DONE, "1ST", external_id="pi_2"), now=NOW)
    assert (change.external_id, change.surplus) == ("pi_1", ("pi_2",))


@pytest.mark.parametrize("column", ["REQ", "UNK", "PEN", "REV", "SUC", "FAI", "CAN"])
@pytest.mark.parametrize("proof", [Proof.OPEN, Proof.NEEDS_ACTION, Proof.DECLINED])
@pytest.mark.parametrize("name", ["confirm", "cancel"])
def test_another_intent_that_has_not_charged_is_surplus(name: str, proof: Proof, column: str) -> None:
    before = sample(name, column)
    change = advance(before, evidence_of(proof, column, external_id="pi_2"), now=NOW)
    assert change.surplus == ("pi_2",)
    assert (change.state, change.step, change.external_id) == (before.state, before.step, "pi_1")


@pytest.mark.parametrize("column", ["REQ", "UNK", "PEN", "SUC", "FAI", "CAN"])
@pytest.mark.parametrize("proof", [Proof.DONE, Proof.PROCESSING])
@pytest.mark.parametrize("name", ["stripe", "confirm", "cancel"])
def test_a_second_effect_is_for_a_person(name: str, proof: Proof, column: str) -> None:
    change = advance(sample(name, column), evidence_of(proof, column, external_id="pi_2"), now=NOW)
    assert change.state is State.REVIEW
    assert change.review == ("several_objects", f"beside pi_1 there is pi_2 ({proof})")
    assert change.external_id == "pi_1"


@pytest.mark.parametrize("column", ["REQ", "UNK", "PEN", "SUC"])
def test_the_end_of_another_object_changes_nothing(column: str) -> None:
    before = sample("stripe", column)
    change = advance(before, evidence_of(Proof.ENDED, column, external_id="re_2"), now=NOW)
    assert (change.state, change.external_id, change.tells) == (before.state, "pi_1", False)


def test_a_late_intent_of_a_failed_charge_is_surplus() -> None:
    change = advance(sample("create", "FAI"), evidence_of(Proof.DONE, "FAI", external_id="pi_2"), now=NOW)
    assert (change.state, change.surplus) == (State.FAILED, ("pi_2",))


def test_a_refund_that_the_bank_returns_is_told_once() -> None:
    returned = advance(sample("stripe", "SUC"), evidence_of(Proof.ENDED, "SUC", code="lost_or_stolen_card"), now=NOW)
    assert (returned.state, returned.tells) == (State.FAILED, True)
    assert returned.last_error == "lost_or_stolen_card: so it was"
    told = replace(sample("stripe", "FAI"), told=("succeeded", "failed"))
    assert not advance(told, evidence_of(Proof.ENDED, "FAI"), now=NOW).tells


def test_what_was_told_is_not_told_again_after_a_review() -> None:
    reviewed = replace(sample("stripe", "WRG"), told=("succeeded",))
    assert not advance(reviewed, evidence_of(Proof.RULED_SUCCEEDED, "WRG"), now=NOW).tells
    assert advance(reviewed, evidence_of(Proof.RULED_FAILED, "WRG"), now=NOW).tells


def decline() -> Change:
    return advance(
        replace(sample("confirm", "1ST"), looked_up_at=NOW, tries=3),
        evidence_of(
            Proof.DECLINED, "1ST", code="card_declined", detail="Your card was declined.", object={"id": "pi_1"}
        ),
        now=NOW,
    )


def test_a_decline_keeps_its_reason_until_the_cancel_is_certain() -> None:
    change = decline()
    reason = "card_declined: Your card was declined."
    assert change.result == {"id": "pi_1", "code": "card_declined", "reason": reason}
    assert (change.next_attempt_at, change.tries, change.looked_up_at) == (NOW, 0, None)
    closing = replace(sample("cancel", "1ST"), result=change.result, last_error="a timeout of the cancel")
    ended = advance(closing, evidence_of(Proof.ENDED, "1ST", object={"id": "pi_1", "status": "canceled"}), now=NOW)
    assert ended.last_error == reason
    assert ended.result == {"id": "pi_1", "status": "canceled", "code": "card_declined", "reason": reason}


@pytest.mark.parametrize("name", ["confirm", "cancel"])
def test_a_cancel_that_was_asked_for_ends_canceled(name: str) -> None:
    asked = replace(sample(name, "PEN"), cancel_asked=True)
    assert advance(asked, evidence_of(Proof.ENDED, "PEN"), now=NOW).state is State.CANCELED
    assert advance(asked, evidence_of(Proof.DONE, "PEN"), now=NOW).state is State.SUCCEEDED


@pytest.mark.parametrize(("call", "wait"), [(CHARGE, 24 * HOUR), (OFF_SESSION, HOUR)])
def test_a_required_action_has_a_deadline(call: Call, wait: Any) -> None:
    sending = operation(call, step="confirm", state=State.SENDING, external_id="pi_1")
    change = advance(sending, evidence_of(Proof.NEEDS_ACTION, "1ST"), now=NOW)
    assert (change.state, change.action_until) == (State.PENDING, NOW + wait)
    waiting = operation(
        call, step="confirm", state=State.PENDING, external_id="pi_1", action_until=change.action_until, sent=True
    )
    later = advance(waiting, evidence_of(Proof.NEEDS_ACTION, "PEN"), now=NOW + 10 * MINUTE)
    assert later.action_until == NOW + wait
    assert later.next_attempt_at is not None
    assert later.next_attempt_at <= NOW + wait


def test_an_action_that_was_taken_has_no_deadline_any_more() -> None:
    waiting = replace(sample("confirm", "PEN"), action_until=NOW + HOUR)
    assert advance(waiting, evidence_of(Proof.PROCESSING, "PEN"), now=NOW).action_until is None


def test_a_complete_look_that_finds_nothing_is_noted_and_decided_on_at_once() -> None:
    change = advance(sample("stripe", "UNK"), evidence_of(Proof.ABSENT, "UNK"), now=NOW)
    assert (change.looked_up_at, change.next_attempt_at, change.tries) == (NOW, NOW, 0)


def test_a_send_voids_the_look_before_it() -> None:
    looked = replace(sample("stripe", "AGN"), looked_up_at=NOW)
    assert advance(looked, evidence_of(Proof.UNKNOWN, "AGN"), now=NOW).looked_up_at is None


def test_pauses_double_and_are_capped() -> None:
    def after(tries: int) -> float:
        change = advance(replace(sample("stripe", "AGN"), tries=tries), evidence_of(Proof.BUSY, "AGN"), now=NOW)
        assert change.tries == tries + 1
        assert change.next_attempt_at is not None
        return (change.next_attempt_at - NOW).total_seconds()

    assert 0.75 <= after(0) <= 1.25
    assert 6 <= after(3) <= 10
    assert 0.75 * 900 <= after(40) <= 1.25 * 900


def test_the_pause_that_the_other_side_asks_for_is_kept_up_to_an_hour() -> None:
    sending = sample("stripe", "1ST")
    asked = advance(sending, evidence_of(Proof.LIMITED, "1ST", retry_after_seconds=120), now=NOW)
    assert asked.next_attempt_at == NOW + 2 * MINUTE
    absurd = advance(sending, evidence_of(Proof.LIMITED, "1ST", retry_after_seconds=1e9), now=NOW)
    assert absurd.next_attempt_at == NOW + HOUR


def test_looks_at_what_is_pending_become_rarer() -> None:
    first = advance(sample("stripe", "1ST"), evidence_of(Proof.PROCESSING, "1ST"), now=NOW)
    late = advance(replace(sample("stripe", "PEN"), tries=30), evidence_of(Proof.PROCESSING, "PEN"), now=NOW)
    failed = advance(replace(sample("stripe", "PEN"), tries=30), evidence_of(Proof.LOOKUP_FAILED, "PEN"), now=NOW)
    for change, expected in ((first, LIMITS.poll_first), (late, LIMITS.poll_most), (failed, LIMITS.poll_most)):
        assert change.next_attempt_at is not None
        assert 0.75 * expected <= change.next_attempt_at - NOW <= 1.25 * expected


@pytest.mark.parametrize(
    ("name", "column", "proof", "code"),
    [
        ("stripe", "UNK", Proof.SEVERAL, "several_objects"),
        ("confirm", "1ST", Proof.KEY_MISMATCH, "key_mismatch"),
        ("stripe", "1ST", Proof.STRANGE, "answer_strange"),
        ("stripe", "PEN", Proof.ABSENT, "answer_strange"),
        ("stripe", "FAI", Proof.DONE, "settled_otherwise"),
        ("cancel", "PEN", Proof.REFUSED, "cancel_refused"),
        ("cancel", "1ST", Proof.OPEN, "cancel_refused"),
        ("confirm", "UNK", Proof.ABSENT, "answer_strange"),
    ],
)
def test_codes_of_reviews(name: str, column: str, proof: Proof, code: str) -> None:
    change = advance(sample(name, column), evidence_of(proof, column), now=NOW)
    assert change.review is not None
    assert change.review[0] == code


def test_a_strange_answer_about_another_object_is_told_as_such() -> None:
    strange = evidence_of(Proof.STRANGE, "UNK", external_id="re_2", detail="amount is 5, asked was 500")
    change = advance(sample("stripe", "UNK"), strange, now=NOW)
    assert change.review == ("answer_strange", "amount is 5, asked was 500")
