"""What an operation's row says after a job; what was asked for meanwhile is not forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from onceflow_processor.operations.job import Job, Purpose
from onceflow_processor.operations.settling import (
    CALLBACK_FIRST,
    CALLBACK_MOST,
    LOOK_AGAIN,
    Fresh,
    Settlement,
    concluded,
    settle,
    unmade,
)
from onceflow_schemas.operations.calls import Call
from onceflow_schemas.operations.evidence import Evidence, Proof
from onceflow_schemas.operations.freeze import closing_step
from onceflow_schemas.operations.limits import LIMITS
from onceflow_schemas.operations.operation import State
from tests.processor.operations.values import CHARGE, NOW, REFUND, claimed


def fresh(**more: Any) -> Fresh:
    return Fresh(**{"cancel_asked": False, "look_asked": False, "look_at": None, "now": NOW, **more})


def sent(call: Call = REFUND, **more: Any) -> Job:
    """A send whose answer has come."""
    lease = claimed(call, state=State.SENDING, attempts=0, **more)
    return Job(purpose=Purpose.SEND, claimed=lease, step=lease.operation.present, attempt=1)


def looked(*, object_id: str | None = None, **more: Any) -> Job:
    lease = claimed(**more)
    return Job(purpose=Purpose.LOOK_UP, claimed=lease, step=lease.operation.present, object_id=object_id)


def closing(**more: Any) -> Job:
    lease = claimed(CHARGE, step=1, external_id="pi_1", surplus=("pi_2", "pi_3"), **more)
    step = closing_step(lease.operation, "pi_2")
    return Job(purpose=Purpose.CLOSE, claimed=lease, step=step, attempt=4, object_id="pi_2")


def done(external_id: str = "re_1", **more: Any) -> Evidence:
    return Evidence(proof=Proof.DONE, external_id=external_id, status="succeeded", object={"id": external_id}, **more)


def of(job: Job, evidence: Evidence, **asked: Any) -> Settlement:
    return settle(job, evidence, fresh=fresh(**asked), limits=LIMITS)


def test_success_is_told_and_nothing_is_due_any_more() -> None:
    found = of(sent(), done())
    operation = found.row.operation
    assert (operation.state, operation.told, operation.external_id) == (State.SUCCEEDED, ("succeeded",), "re_1")
    assert (found.tells, found.former, found.row.next_attempt_at, found.row.keep_lease) == (
        True,
        State.SENDING,
        None,
        False,
    )
    assert (found.review, found.leaves_review) == (None, False)


def test_doubt_is_due_later_and_tells_nobody() -> None:
    found = of(sent(), Evidence(proof=Proof.UNKNOWN, code="deadline"))
    assert (found.row.operation.state, found.tells) == (State.UNKNOWN, False)
    assert found.row.next_attempt_at is not None
    assert found.row.next_attempt_at > NOW


def test_what_is_strange_opens_a_review_and_evidence_closes_it() -> None:
    opened = of(sent(), Evidence(proof=Proof.STRANGE, detail="another amount"))
    assert opened.review == ("answer_strange", "another amount")
    lease = looked(state=State.REVIEW, review_code="operation_not_found", sent=True)
    closed = of(lease, done(from_lookup=True))
    assert (closed.leaves_review, closed.tells) == (True, True)


def test_a_state_is_told_once() -> None:
    assert not of(sent(told=("succeeded",)), done()).tells


@pytest.mark.parametrize(
    ("evidence", "asked", "look_asked"),
    [
        (done(), {"look_asked": True}, False),
        (done(), {"look_asked": True, "look_at": "re_1"}, False),
        (done(), {"look_asked": True, "look_at": "re_2"}, True),
    ],
)
def test_a_reason_to_look_is_met_only_by_its_object(
    evidence: Evidence, asked: dict[str, Any], *, look_asked: bool
) -> None:
    found = of(sent(), evidence, **asked)
    assert found.row.operation.look_asked is look_asked
    assert found.row.look_at == (asked["look_at"] if look_asked else None)
    assert found.row.next_attempt_at == (NOW if look_asked else None)


def test_a_look_that_learnt_nothing_stays_a_reason() -> None:
    job = looked(object_id="re_2", state=State.SUCCEEDED, external_id="re_1", look_asked=True, look_at="re_2")
    failed = Evidence(proof=Proof.LOOKUP_FAILED, from_lookup=True)
    found = of(job, failed, look_asked=True, look_at="re_2")
    assert found.row.operation.look_asked
    assert found.row.next_attempt_at == NOW + LOOK_AGAIN
    newer = of(job, failed, look_asked=True, look_at="re_3")
    assert newer.row.next_attempt_at == NOW
    met = of(job, done("re_2", from_lookup=True), look_asked=True, look_at="re_2")
    assert (met.row.operation.look_asked, met.row.operation.state) == (False, State.REVIEW)


def test_a_cancel_that_was_asked_for_meanwhile_is_seen() -> None:
    job = sent(CHARGE, step=2, external_id="pi_1")
    ended = Evidence(proof=Proof.ENDED, external_id="pi_1", status="canceled")
    assert of(job, ended).row.operation.state is State.FAILED
    assert of(job, ended, cancel_asked=True).row.operation.state is State.CANCELED


def test_a_surplus_intent_is_forgotten_once_it_is_canceled() -> None:
    ended = Evidence(proof=Proof.ENDED, external_id="pi_2", status="canceled")
    found = of(closing(state=State.SUCCEEDED), ended)
    assert (found.row.surplus, found.row.next_attempt_at) == (("pi_3",), NOW)
    assert (found.row.operation.state, found.tells, found.review) == (State.SUCCEEDED, False, None)
    later = of(closing(state=State.SUCCEEDED), Evidence(proof=Proof.UNKNOWN))
    assert (later.row.surplus, later.row.next_attempt_at) == (("pi_2", "pi_3"), NOW + LOOK_AGAIN)
    under_way = of(closing(state=State.PENDING), ended)
    assert under_way.row.next_attempt_at == NOW


def test_a_surplus_intent_that_has_charged_is_for_a_person() -> None:
    found = of(closing(state=State.SUCCEEDED, told=("succeeded",)), done("pi_2"))
    assert found.review is not None
    assert found.review[0] == "several_objects"
    assert (found.row.operation.state, found.row.surplus) == (State.REVIEW, ("pi_3",))


def test_a_surplus_intent_is_remembered() -> None:
    made = Evidence(proof=Proof.DONE, external_id="pi_1", status="requires_confirmation", surplus=("pi_2",))
    found = of(sent(CHARGE), made)
    assert (found.row.operation.state, found.row.operation.step, found.row.surplus) == (State.REQUESTED, 1, ("pi_2",))
    assert found.row.next_attempt_at == NOW


def test_a_callback_that_failed_keeps_the_proof_and_gives_the_lease_up() -> None:
    settlement = of(sent(), done())
    row = concluded(settlement, reason="ValueError: no", fresh=fresh(), limits=LIMITS)
    operation = row.operation
    assert (operation.state, operation.told, operation.last_error) == (State.UNKNOWN, (), "ValueError: no")
    assert operation.conclusion == {
        "proof": "done", "external_id": "re_1", "status": "succeeded", "object": {"id": "re_1"},
    }  # fmt: skip
    assert (row.next_attempt_at, row.keep_lease) == (NOW + CALLBACK_FIRST, False)


def test_its_pauses_grow_and_have_an_end() -> None:
    lease = claimed(state=State.UNKNOWN, conclusion={"proof": "done"}, tries=3)
    job = Job(purpose=Purpose.SETTLE, claimed=lease, step=lease.operation.present)
    row = concluded(of(job, done()), reason="no", fresh=fresh(), limits=LIMITS)
    assert (row.operation.tries, row.next_attempt_at) == (4, NOW + 8 * CALLBACK_FIRST)
    lease = claimed(state=State.UNKNOWN, conclusion={"proof": "done"}, tries=300)
    job = Job(purpose=Purpose.SETTLE, claimed=lease, step=lease.operation.present)
    row = concluded(of(job, done()), reason="no", fresh=fresh(), limits=LIMITS)
    assert row.next_attempt_at == NOW + CALLBACK_MOST


def test_what_was_never_begun_says_so() -> None:
    assert unmade("why", looks=False) == Evidence(proof=Proof.NOT_SENT, detail="why")
    assert unmade("why", looks=True) == Evidence(proof=Proof.LOOKUP_FAILED, from_lookup=True, detail="why")
