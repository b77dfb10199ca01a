"""What an operator sees: operations by state, the age of the oldest, attempts by what they proved, paused accounts."""

from __future__ import annotations

from typing import Any

import pytest

from onceflow_schemas.operations.evidence import Evidence, Proof
from tests.processor.operations.conftest import Desk, Scripted, done, says
from tests.processor.processor_process import wait_until


def answers(step: Any, operation: Any) -> Evidence:
    by_subject = {"in_1": says(Proof.STRANGE), "in_2": says(Proof.UNKNOWN)}
    return by_subject.get(operation.subject, done)(step, operation)


def test_states_ages_and_attempts(desk: Desk) -> None:
    desk.ask("in_1", "in_2", "in_3", "in_4")
    with desk.working(Scripted(answers)) as operator:
        desk.wait_for(in_1="review", in_2="unknown", in_3="succeeded", in_4="succeeded")
        desk.change(
            "UPDATE onceflow.operation SET requested_at = requested_at - interval '1 hour' WHERE subject = 'in_2'"
        )
        wait_until(
            lambda: operator.value("onceflow_operations_oldest_seconds", state="unknown") >= 3600, "its age is shown"
        )
        states = ("requested", "pending", "review")
        assert [operator.value("onceflow_operations_open", state=state) for state in states] == [0, 0, 1]
        proofs = ("done", "strange")
        assert [operator.value("onceflow_operations_attempts_total", evidence=proof) for proof in proofs] == [2, 1]
        assert operator.value("onceflow_operations_attempts_total", evidence="unknown") >= 1
        assert operator.value("onceflow_operations_settled_total", effect="refund", state="succeeded") == 2


@pytest.mark.long
def test_a_paused_account_is_shown_until_its_key_is_taken(desk: Desk) -> None:
    sender = Scripted(says(Proof.UNAUTHORISED, detail="401"))
    with desk.working(sender) as operator:
        desk.ask("in_1")
        paused = "onceflow_operations_account_paused"
        wait_until(lambda: operator.value(paused, account="acct_test") == 1, "the pause is shown")
        sender.answer = done
        desk.change("UPDATE onceflow.account_budget SET blocked_until = clock_timestamp()")
        wait_until(lambda: operator.value(paused, account="acct_test") == 0, "its end is shown")
