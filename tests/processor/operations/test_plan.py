"""What is done about a leased operation: a call with its row, a settlement without one, or nothing."""

from __future__ import annotations

from datetime import timedelta

from onceflow_processor.operations.job import SURPLUS_STEP, Purpose
from onceflow_processor.operations.plan import costs, plan, step_index, within
from onceflow_schemas.operations.calls import HttpCall
from onceflow_schemas.operations.evidence import Proof
from onceflow_schemas.operations.limits import LIMITS
from onceflow_schemas.operations.operation import Operation, State
from tests.processor.operations.values import CHARGE, ID, NOW, claimed

AGO = timedelta(hours=21)


def test_a_new_operation_is_sent_within_its_window() -> None:
    planned = plan(claimed(attempts=2), limits=LIMITS)
    job, row = planned.job, planned.row
    assert job is not None
    assert row is not None
    assert (job.purpose, job.attempt, job.step.key) == (Purpose.SEND, 3, str(ID))
    assert job.send_before == NOW - timedelta(hours=1) + LIMITS.safe_window
    assert (row.operation.state, row.keep_lease) == (State.SENDING, True)
    assert job.operation is row.operation
    assert (planned.released.operation.state, planned.released.keep_lease) == (State.REQUESTED, False)
    assert planned.released.next_attempt_at == NOW


def test_after_the_window_a_new_one_is_looked_up_first_and_its_send_relies_on_no_window() -> None:
    planned = plan(claimed(window_from=NOW - AGO), limits=LIMITS)
    assert planned.job is not None
    assert (planned.job.purpose, planned.job.attempt) == (Purpose.LOOK_UP, 0)
    assert planned.job.how is not None
    assert "list" in planned.job.how
    assert planned.row is not None
    assert (planned.row.operation.state, planned.row.keep_lease) == (State.REQUESTED, True)
    looked = plan(claimed(window_from=NOW - AGO, looked_up_at=NOW), limits=LIMITS)
    assert looked.job is not None
    assert (looked.job.purpose, looked.job.send_before) == (Purpose.SEND, None)


def test_the_attempt_of_a_dead_worker_counts_as_sent() -> None:
    dead = claimed(state=State.SENDING, attempts=1, in_hand_at=NOW - timedelta(hours=3), window_from=NOW - AGO)
    planned = plan(dead, limits=LIMITS)
    assert planned.job is not None
    assert planned.job.purpose is Purpose.LOOK_UP
    operation = planned.job.operation
    assert (operation.state, operation.sent, operation.last_sent_at) == (State.UNKNOWN, True, dead.in_hand_at)
    assert planned.released.operation.state is State.UNKNOWN


def test_what_may_have_been_sent_and_cannot_be_found_opens_a_review() -> None:
    long_ago = NOW - timedelta(hours=2)
    lost = claimed(
        state=State.UNKNOWN, sent=True, last_sent_at=long_ago, looked_up_at=NOW, window_from=NOW - AGO, attempts=1
    )
    planned = plan(lost, limits=LIMITS)
    assert planned.job is None
    assert planned.review is not None
    assert planned.review[0] == "operation_not_found"
    row = planned.released
    assert (row.operation.state, row.next_attempt_at, row.keep_lease) == (State.REVIEW, None, False)


def test_what_must_wait_is_let_go_until_then() -> None:
    sent = NOW - timedelta(minutes=5)
    waits = claimed(
        state=State.UNKNOWN, sent=True, last_sent_at=sent, looked_up_at=NOW, window_from=NOW - AGO, attempts=1
    )
    planned = plan(waits, limits=LIMITS)
    assert planned.job is None
    assert planned.released.next_attempt_at == sent + LIMITS.absence_wait


def test_a_conclusion_is_settled_without_a_call() -> None:
    planned = plan(claimed(state=State.UNKNOWN, conclusion={"proof": "done", "external_id": "re_1"}), limits=LIMITS)
    assert planned.job is not None
    assert planned.job.purpose is Purpose.SETTLE
    assert planned.evidence is not None
    assert (planned.evidence.proof, planned.evidence.external_id) == (Proof.DONE, "re_1")
    assert planned.row is not None
    assert planned.row.keep_lease
    assert not costs(planned.job)


def test_a_cancel_before_anything_was_sent_is_settled_without_a_call() -> None:
    planned = plan(claimed(cancel_asked=True), limits=LIMITS)
    assert planned.evidence is not None
    assert planned.evidence.proof is Proof.ABANDONED


def test_an_abandoned_charge_is_closed_at_once() -> None:
    waiting = claimed(
        CHARGE,
        step=1,
        state=State.PENDING,
        external_id="pi_1",
        sent=True,
        last_sent_at=NOW - timedelta(hours=2),
        action_until=NOW,
        attempts=2,
    )
    planned = plan(waiting, limits=LIMITS)
    assert planned.job is not None
    assert (planned.job.purpose, planned.job.step.name, planned.job.attempt) == (Purpose.SEND, "cancel", 3)
    assert (planned.job.operation.step, planned.job.operation.sent) == (2, False)
    assert step_index(planned.job) == 2


def test_an_object_that_a_webhook_named_is_the_one_that_is_looked_at() -> None:
    settled = claimed(state=State.SUCCEEDED, external_id="re_1", look_asked=True, look_at="re_2", told=("succeeded",))
    planned = plan(settled, limits=LIMITS)
    assert planned.job is not None
    assert (planned.job.how, planned.job.object_id) == ({"retrieve": "/v1/refunds/re_2"}, "re_2")
    assert planned.job.operation.external_id == "re_1"


def test_a_surplus_intent_is_closed_when_nothing_is_more_urgent() -> None:
    settled = claimed(CHARGE, step=1, state=State.SUCCEEDED, external_id="pi_1", surplus=("pi_2", "pi_3"), attempts=2)
    planned = plan(settled, limits=LIMITS)
    job = planned.job
    assert job is not None
    assert (job.purpose, job.object_id, job.attempt) == (Purpose.CLOSE, "pi_2", 3)
    assert job.step.request["path"] == "/v1/payment_intents/pi_2/cancel"
    assert step_index(job) == SURPLUS_STEP
    assert job.operation.state is State.SUCCEEDED
    urgent = plan(claimed(CHARGE, step=1, external_id="pi_1", surplus=("pi_2",)), limits=LIMITS)
    assert urgent.job is not None
    assert urgent.job.purpose is Purpose.SEND


def test_what_is_at_rest_is_let_go_for_ever() -> None:
    planned = plan(claimed(state=State.SUCCEEDED, external_id="re_1"), limits=LIMITS)
    assert (planned.job, planned.released.next_attempt_at) == (None, None)


def test_budgets_are_spent_in_order_and_only_by_calls_to_stripe() -> None:
    mail = HttpCall(url="https://mail.example.com/send", json={"a": 1})
    planned = [
        plan(claimed(), limits=LIMITS),
        plan(claimed(account="acct_2"), limits=LIMITS),
        plan(claimed(), limits=LIMITS),
        plan(claimed(mail), limits=LIMITS),
        plan(claimed(state=State.SUCCEEDED), limits=LIMITS),
    ]
    allowed, waiting = within(planned, {"acct_1": 1})
    assert allowed == [planned[0], planned[3], planned[4]]
    assert waiting == [planned[1], planned[2]]


def test_an_operation_of_values_is_one() -> None:
    assert isinstance(claimed().operation, Operation)
