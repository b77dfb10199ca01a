"""Whatever is lost, late, doubled, restored or decided by banks and people, in any order: the promises hold.

A charge moves money at most once, always.  A refund has no fence of its own: only a request that was on its way for longer
than Stripe keeps a key may double it, and then it ends before a person.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from onceflow_schemas.operations.calls import Call
from onceflow_schemas.operations.decide import can_be_abandoned
from onceflow_schemas.operations.operation import SETTLED, Operation, Role, State
from onceflow_schemas.operations.why import why
from tests.schemas.operations.model_stripe import Behaviour, ModelStripe
from tests.schemas.operations.model_worker import Attempt, Fault, ModelWorker
from tests.schemas.operations.samples import CHARGE, NOW, OFF_SESSION, REFUND, operation

FAULTS: tuple[Fault, ...] = (
    "none",
    "lost_request",
    "lost_answer",
    "slow",
    "crash_before",
    "crash_after",
    "limited",
    "refused_key",
    "busy",
    "unsent",
)
PAUSES = [timedelta(seconds=5), timedelta(minutes=1), timedelta(minutes=20), timedelta(hours=7), timedelta(hours=26)]
BEHAVIOURS: list[Behaviour] = ["pays", "declines", "processes", "asks", "invalid"]

QUIET_STEPS_MAX = 200
REASONS = {
    "operation_not_found",
    "several_objects",
    "cancel_refused",
    "settled_otherwise",
}
"""Why an operation may end before a person here."""


class Operations(RuleBasedStateMachine):
    """One operation, one worker after another, one Stripe."""

    call: Call = REFUND

    @initialize(
        behaviour=st.sampled_from(BEHAVIOURS),
        age=st.sampled_from([timedelta(0), timedelta(hours=19), timedelta(days=3)]),
    )
    def begin(self, behaviour: Behaviour, age: timedelta) -> None:
        step = "call" if self.call is REFUND else "create"
        asked = operation(self.call, step=step, requested_at=NOW - age, window_from=NOW - age)
        self.stripe = ModelStripe(behaviour)
        self.worker = ModelWorker(self.stripe, asked, NOW)
        self.snapshots: list[tuple[Operation, list[Attempt]]] = [self.snapshot()]

    def snapshot(self) -> tuple[Operation, list[Attempt]]:
        return self.worker.operation, copy.deepcopy(self.worker.attempts)

    @rule(fault=st.sampled_from(FAULTS), times=st.integers(1, 3))
    def work(self, fault: Fault, times: int) -> None:
        for _ in range(times):
            self.worker.work(fault)
        self.snapshots.append(self.snapshot())

    @rule()
    def work_well(self) -> None:
        for _ in range(4):
            self.worker.work("none")

    @rule(pause=st.sampled_from(PAUSES))
    def time_passes(self, pause: timedelta) -> None:
        self.worker.now += pause

    @precondition(lambda self: self.worker.on_their_way)
    @rule()
    def a_late_request_lands(self) -> None:
        self.worker.land()

    @rule(good=st.booleans())
    def others_decide(self, good: bool) -> None:  # noqa: FBT001 - a rule's argument.
        self.stripe.decide(good=good)

    @rule()
    def the_bank_returns_it(self) -> None:
        self.stripe.give_back()

    @precondition(lambda self: self.stripe.objects)
    @rule(which=st.integers(0, 9))
    def a_webhook(self, which: int) -> None:
        ids = sorted(self.stripe.objects)
        self.worker.hint(ids[which % len(ids)])

    @rule()
    def a_person_asks_for_the_cancel(self) -> None:
        if can_be_abandoned(self.worker.read()):
            self.worker.operation = replace(self.worker.operation, cancel_asked=True)

    @precondition(lambda self: self.worker.operation.state not in SETTLED)
    @rule(which=st.integers(0, 30))
    def the_database_is_put_back(self, which: int) -> None:
        """What was told since then was told by rows that are gone, outcomes included."""
        back, attempts = self.snapshots[which % len(self.snapshots)]
        # Whoever notes a restore voids the looks of all rows: what was sent after them is forgotten.
        self.worker.operation, self.worker.attempts = replace(back, looked_up_at=None), copy.deepcopy(attempts)
        self.worker.told = [State(state) for state in back.told]
        self.worker.complete_look_at = None
        self.worker.restored = True

    @invariant()
    def a_charge_moves_money_at_most_once(self) -> None:
        if not hasattr(self, "worker"):
            return
        if self.call is not REFUND:
            assert len(self.stripe.effects) <= 1
        assert len(self.stripe.effects) <= 1 + self.stripe.expired_keys_used

    @invariant()
    def a_charge_has_failed_only_when_its_intent_is_closed(self) -> None:
        if not hasattr(self, "worker") or self.call is REFUND:
            return
        done = self.worker.operation
        if done.state in (State.FAILED, State.CANCELED) and done.external_id is not None:
            assert self.stripe.objects[done.external_id]["status"] == "canceled"

    @invariant()
    def it_can_always_be_told_why(self) -> None:
        if hasattr(self, "worker"):
            assert why(self.worker.read(), now=self.worker.now).endswith(".")

    def teardown(self) -> None:
        if hasattr(self, "worker"):
            self.quiet()
            self.judge_the_end()

    def quiet(self) -> None:
        """The faults stop: requests land, banks decide, webhooks come, and workers go on."""
        while self.worker.on_their_way:
            self.worker.land()
        for _ in range(QUIET_STEPS_MAX):
            self.stripe.decide(good=True)
            pause = self.worker.work("none")
            if pause is None:
                break
            self.worker.now += max(pause, timedelta(minutes=1))
        for _ in range(2):
            for object_id in sorted(self.stripe.objects):
                self.worker.hint(object_id)
            self.worker.close_surplus()

    def judge_the_end(self) -> None:
        end, effects = self.worker.operation, set(self.stripe.effects)
        assert end.state in SETTLED or end.state is State.REVIEW, end.state
        if len(self.stripe.effects) > 1:
            assert end.state is State.REVIEW, "a doubled refund is before a person"
        if end.state is State.REVIEW:
            assert end.review_code in REASONS
            return
        standing = {each for each in effects if self.stripe.objects[each]["status"] in ("succeeded", "pending")}
        assert (end.state is State.SUCCEEDED) == bool(standing), (end.state, self.stripe.objects)
        confirmable = {
            each["id"]
            for each in self.stripe.objects.values()
            if each["object"] == "payment_intent" and each["status"].startswith("requires_")
        }
        assert confirmable == set(), "no intent is left that somebody could confirm"


class Charges(Operations):
    call = CHARGE


class OffSessionCharges(Operations):
    call = OFF_SESSION


@pytest.mark.parametrize("machine", [Operations, Charges, OffSessionCharges])
def test_any_order(machine: type[Operations]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=100,
            stateful_step_count=25,
            deadline=None,
            phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


def test_the_roles_are_those_of_the_model() -> None:
    assert [step.name for step in operation(CHARGE).steps] == [Role.CREATE, Role.CONFIRM, Role.CANCEL]
