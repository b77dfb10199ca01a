"""What a person may decide, in which state, and that a retry is another operation."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from onceflow_schemas.failure import Refused
from onceflow_schemas.identity import operation_id
from onceflow_schemas.operations.operation import State
from onceflow_schemas.operations.rulings import (
    CLOSING,
    allowed,
    cancel,
    check_cancel,
    close_reviewed,
    only_to_settle,
    resolve,
    retry,
)
from tests.schemas.operations.samples import CHARGE, NOW, REFUND, operation

UNDER_WAY = {State.REQUESTED, State.SENDING, State.PENDING, State.UNKNOWN}


@pytest.mark.parametrize("state", State)
def test_a_charge_may_be_canceled_while_it_is_under_way(state: State) -> None:
    charge = operation(CHARGE, step="confirm", state=state, external_id="pi_1", sent=True)
    if state in UNDER_WAY:
        check_cancel(charge)
    else:
        with pytest.raises(Refused, match="ruling_refused"):
            check_cancel(charge)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("sent", [False, True])
def test_another_operation_only_before_anything_was_sent(state: State, sent: bool) -> None:  # noqa: FBT001
    asked = operation(REFUND, state=state, sent=sent)
    if state is State.REQUESTED and not sent:
        check_cancel(asked)
    else:
        with pytest.raises(Refused, match="ruling_refused"):
            check_cancel(asked)


def test_after_a_restore_nothing_counts_as_never_sent() -> None:
    with pytest.raises(Refused):
        check_cancel(operation(REFUND, restored=True))


def test_the_intent_of_a_charge_in_review_can_be_closed() -> None:
    charge = operation(CHARGE, step="confirm", state=State.REVIEW, external_id="pi_1", review_code="several_objects")
    change = close_reviewed(charge, now=NOW)
    assert (change.state, change.step, change.next_attempt_at) == (State.PENDING, 2, NOW)
    for other in (operation(REFUND, state=State.REVIEW), operation(CHARGE, step="confirm", state=State.UNKNOWN)):
        with pytest.raises(Refused, match="ruling_refused"):
            close_reviewed(other, now=NOW)


@pytest.mark.parametrize("state", State)
def test_what_may_be_resolved(state: State) -> None:
    asked = operation(REFUND, state=state, result={"id": "re_1"}, last_error="a timeout")
    if state not in {State.REVIEW, State.UNKNOWN}:
        with pytest.raises(Refused, match="ruling_refused"):
            resolve(asked, "failed", reason="seen in the dashboard", now=NOW)
        return
    failed = resolve(asked, "failed", reason="not in the dashboard", now=NOW)
    assert (failed.state, failed.tells, failed.last_error) == (State.FAILED, True, "not in the dashboard")
    succeeded = resolve(asked, "succeeded", reason="seen in the dashboard", now=NOW)
    assert (succeeded.state, succeeded.tells, succeeded.last_error) == (State.SUCCEEDED, True, None)
    assert succeeded.result == {"id": "re_1"}


def test_a_decision_needs_a_reason() -> None:
    with pytest.raises(Refused, match="a decision needs a reason"):
        resolve(operation(REFUND, state=State.REVIEW), "failed", reason=" ", now=NOW)


@pytest.mark.parametrize("state", State)
def test_what_is_tried_again_is_the_next_occurrence(state: State) -> None:
    ended = operation(REFUND, state=state, occurrence=3)
    if state not in {State.FAILED, State.CANCELED}:
        with pytest.raises(Refused, match="ruling_refused"):
            retry(ended)
        return
    occurrence, again = retry(ended)
    assert occurrence == 4
    assert isinstance(again, UUID)
    assert again == operation_id(account="acct_1", mode="test", effect="pay", subject="order-1", occurrence=4)


def test_what_is_proved_already_is_not_decided_again() -> None:
    known: dict[str, Any] = {"conclusion": {"proof": "done"}, "state": State.REVIEW}
    with pytest.raises(Refused, match="is known \\(done\\)"):
        resolve(operation(REFUND, **known), "failed", reason="x", now=NOW)
    with pytest.raises(Refused, match="is known"):
        close_reviewed(operation(CHARGE, step="confirm", external_id="pi_1", **known), now=NOW)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize(("proof", "why"), [("done", "what became of it is known"), ("ruled_failed", "a person has")])
def test_of_what_is_known_only_the_settlement_can_be_tried_again(state: State, proof: str, why: str) -> None:
    charge = operation(CHARGE, step="confirm", external_id="pi_1", state=state, sent=True, conclusion={"proof": proof})
    with pytest.raises(Refused, match=f"{why}.*\\({proof}\\)|it is {state}"):
        cancel(charge, now=NOW)
    assert allowed(charge, now=NOW) == ("retry",)
    assert only_to_settle(charge)


def test_a_cancel_is_noted_or_closes_the_intent_of_a_charge_in_review() -> None:
    assert cancel(operation(REFUND), now=NOW) is None
    charge = operation(CHARGE, step="confirm", state=State.REVIEW, external_id="pi_1", review_code="several_objects")
    assert cancel(charge, now=NOW) is CLOSING


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (State.REQUESTED, ("cancel",)),
        (State.SENDING, ()),
        (State.PENDING, ()),
        (State.UNKNOWN, ("resolve",)),
        (State.REVIEW, ("resolve",)),
        (State.SUCCEEDED, ()),
        (State.FAILED, ("retry",)),
        (State.CANCELED, ("retry",)),
    ],
)
def test_which_decisions_a_person_has(state: State, expected: tuple[str, ...]) -> None:
    assert allowed(operation(REFUND, state=state), now=NOW) == expected
