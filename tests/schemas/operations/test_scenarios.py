"""The stories that operations are for, one after another, against the model of Stripe: what was sent, and what moved money."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from onceflow_schemas.operations.calls import Call
from onceflow_schemas.operations.operation import State
from tests.schemas.operations.model_stripe import Behaviour, ModelStripe
from tests.schemas.operations.model_worker import Fault, ModelWorker
from tests.schemas.operations.samples import CHARGE, HOUR, MINUTE, NOW, OFF_SESSION, REFUND, operation

DAYS_3 = timedelta(days=3)


def worker(call: Call, behaviour: Behaviour = "pays", *, age: timedelta = timedelta(0)) -> ModelWorker:
    step = "call" if call is REFUND else "create"
    asked = operation(call, step=step, requested_at=NOW - age, window_from=NOW - age)
    return ModelWorker(ModelStripe(behaviour), asked, NOW)


def work(one: ModelWorker, *faults: Fault) -> State:
    for fault in faults:
        one.work(fault)
    return one.operation.state


def sends(one: ModelWorker) -> int:
    return len(one.attempts)


def test_a_lost_answer_is_unknown_and_then_succeeded_with_one_effect() -> None:
    refund = worker(REFUND)
    assert work(refund, "lost_answer") is State.UNKNOWN
    assert work(refund, "none") is State.SUCCEEDED
    assert refund.stripe.effects == ["re_1"]


def test_a_charge_whose_every_answer_is_lost_once_charges_once() -> None:
    charge = worker(CHARGE)
    assert work(charge, "lost_answer", "none", "lost_answer") is State.UNKNOWN
    assert work(charge, "none") is State.SUCCEEDED
    assert charge.stripe.effects == ["pi_1"]
    assert sends(charge) == 3


@pytest.mark.parametrize("call", [REFUND, CHARGE])
def test_unknown_past_the_window_is_settled_by_a_look(call: Call) -> None:
    one = worker(call)
    if call is CHARGE:
        work(one, "none")
    assert work(one, "lost_answer") is State.UNKNOWN
    made = sends(one)
    one.now += 25 * HOUR
    assert work(one, "none") is State.SUCCEEDED
    assert (sends(one), len(one.stripe.effects)) == (made, 1)


def test_a_refund_that_is_not_found_is_for_a_person_and_a_late_webhook_still_settles_it() -> None:
    refund = worker(REFUND)
    assert work(refund, "slow") is State.UNKNOWN
    refund.now += 25 * HOUR
    assert work(refund, "none", "none") is State.REVIEW
    assert (refund.operation.review_code, sends(refund)) == ("operation_not_found", 1)
    refund.land()
    refund.hint("re_1")
    assert refund.operation.state is State.SUCCEEDED


@pytest.mark.parametrize("call", [REFUND, CHARGE])
def test_what_was_asked_for_three_days_ago_and_never_sent_is_looked_up_and_sent(call: Call) -> None:
    one = worker(call, age=DAYS_3)
    assert work(one, "none") is State.REQUESTED
    assert sends(one) == 0
    work(one, "none", "none", "none")
    assert one.operation.state is State.SUCCEEDED
    assert len(one.stripe.effects) == 1


def test_a_decline_fails_after_the_cancel_and_is_never_called_again() -> None:
    charge = worker(CHARGE, "declines")
    assert work(charge, "none", "none") is State.PENDING
    assert work(charge, "lost_answer") is State.PENDING
    assert charge.told == []
    assert work(charge, "none") is State.FAILED
    assert charge.operation.last_error == "card_declined"
    assert charge.stripe.objects["pi_1"]["status"] == "canceled"
    made = sends(charge)
    assert work(charge, "none", "none") is State.FAILED
    assert (sends(charge), charge.stripe.effects) == (made, [])


def test_a_cancel_that_came_too_late_is_a_success() -> None:
    charge = worker(OFF_SESSION, "asks")
    assert work(charge, "none", "none") is State.PENDING
    charge.now += 2 * HOUR
    assert work(charge, "none") is State.PENDING
    assert charge.operation.step == 2
    charge.stripe.decide(good=True)
    assert work(charge, "none", "none") is State.SUCCEEDED
    assert charge.stripe.effects == ["pi_1"]


def test_what_a_bank_decides_later_is_no_success_before() -> None:
    charge = worker(CHARGE, "processes")
    assert work(charge, "none", "none", "none") is State.PENDING
    charge.stripe.decide(good=True)
    assert work(charge, "none") is State.SUCCEEDED
    assert sends(charge) == 2


def test_an_unknown_confirm_that_never_arrived_is_no_success_after_the_window() -> None:
    charge = worker(CHARGE)
    work(charge, "none", "lost_request")
    charge.now += 25 * HOUR
    assert work(charge, "none") is State.UNKNOWN
    assert charge.stripe.effects == []
    assert work(charge, "none") is State.SUCCEEDED
    assert charge.stripe.effects == ["pi_1"]


@pytest.mark.parametrize("times", [1, 2])
def test_a_worker_that_sleeps_a_day_before_its_confirm_charges_once(times: int) -> None:
    charge = worker(CHARGE)
    work(charge, "none", "crash_after")
    for _ in range(times):
        charge.now += 26 * HOUR
        work(charge, "none", "none", "none")
    assert charge.operation.state is State.SUCCEEDED
    charge.land()
    assert charge.stripe.effects == ["pi_1"]


def test_a_worker_that_sleeps_a_day_before_its_create_leaves_an_intent_that_is_canceled() -> None:
    charge = worker(CHARGE)
    work(charge, "crash_after", "none", "none", "none")
    assert charge.operation.state is State.SUCCEEDED
    charge.now += 26 * HOUR
    charge.land()
    charge.hint("pi_2")
    assert charge.surplus == {"pi_2"}
    charge.close_surplus()
    assert charge.operation.state is State.SUCCEEDED
    assert [each["status"] for each in charge.stripe.objects.values()] == ["succeeded", "canceled"]
    assert charge.stripe.effects == ["pi_1"]


def test_a_refund_that_a_sleeping_worker_doubles_is_found_and_before_a_person() -> None:
    refund = worker(REFUND)
    work(refund, "crash_after", "none", "none")
    assert refund.operation.state is State.SUCCEEDED
    refund.now += 26 * HOUR
    refund.land()
    assert refund.stripe.effects == ["re_1", "re_2"]
    refund.hint("re_2")
    assert (refund.operation.state, refund.operation.review_code) == (State.REVIEW, "several_objects")
    assert refund.told == [State.SUCCEEDED]


@pytest.mark.parametrize("fault", ["limited", "refused_key", "unsent"])
def test_what_was_not_executed_changes_nothing(fault: Fault) -> None:
    refund = worker(REFUND)
    assert work(refund, fault, fault) is State.REQUESTED
    assert work(refund, "lost_answer", fault) is State.UNKNOWN
    assert work(refund, "none") is State.SUCCEEDED
    assert refund.stripe.effects == ["re_1"]


def test_busy_is_waited_for() -> None:
    refund = worker(REFUND)
    assert work(refund, "busy", "busy") is State.UNKNOWN
    assert work(refund, "none") is State.SUCCEEDED


def test_a_refusal_fails_at_once_or_when_nothing_of_an_earlier_try_is_there() -> None:
    first = worker(REFUND, "invalid")
    assert work(first, "none") is State.FAILED
    again = worker(REFUND, "invalid")
    assert work(again, "lost_request", "none") is State.UNKNOWN
    assert work(again, "none", "none") is State.UNKNOWN
    again.now += 15 * MINUTE
    assert work(again, "none", "none") is State.FAILED
    assert again.operation.last_error == "parameter_invalid"
    assert sends(again) == 2


@pytest.mark.parametrize("step", range(3))
def test_a_cancel_that_a_person_asks_for_ends_canceled_without_an_effect(step: int) -> None:
    charge = worker(CHARGE, "asks")
    for _ in range(step):
        work(charge, "none")
    charge.operation = replace(charge.operation, cancel_asked=True)
    work(charge, "none", "none", "none")
    assert charge.operation.state is State.CANCELED
    assert charge.stripe.effects == []
    assert all(each["status"] == "canceled" for each in charge.stripe.objects.values())


def test_a_refund_that_its_bank_returns_is_reversed_once() -> None:
    refund = worker(REFUND)
    work(refund, "none")
    refund.stripe.give_back()
    for _ in range(3):
        refund.hint("re_1")
    assert refund.operation.state is State.FAILED
    assert refund.told == [State.SUCCEEDED, State.FAILED]
