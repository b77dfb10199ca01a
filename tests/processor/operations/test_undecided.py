"""A row that no rule can be applied to costs no other operation anything, and can be shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import psycopg
import pytest

from onceflow_processor.operations.job import Job, Purpose
from onceflow_processor.operations.overview import Filter, list_operations, show_operation
from onceflow_processor.operations.ruling import Decider, resolve
from onceflow_processor.operations.settling import Fresh, settle
from onceflow_processor.operations.undecided import plan_each
from onceflow_schemas.failure import Refused
from onceflow_schemas.operations.evidence import Evidence, Proof
from onceflow_schemas.operations.limits import LIMITS
from onceflow_schemas.operations.operation import State
from tests.processor.operations.conftest import Desk, Scripted
from tests.processor.operations.values import NOW, claimed


@pytest.fixture
def connection(desk: Desk) -> Iterator[Any]:
    with psycopg.connect(desk.url, autocommit=True) as opened:
        yield opened


def change(desk: Desk, what: str, subject: str = "in_1") -> None:
    desk.change(f"UPDATE onceflow.operation SET {what} WHERE subject = %s", subject)


def steps(desk: Desk, former: str, later: str) -> None:
    desk.change(
        "UPDATE onceflow.operation SET steps = replace(steps::text, %s, %s)::json WHERE subject = 'in_1'",
        former,
        later,
    )


def test_it_is_put_before_a_person_and_the_others_go_on(desk: Desk, connection: Any) -> None:
    [first, _] = desk.ask("in_1", "in_2")
    steps(desk, '"lookup":{', '"lookup":7,"expect":{')
    change(desk, "window_from = window_from - interval '2 days'")
    assert show_operation(connection, UUID(first)).why.startswith("What happens next cannot be told")
    sender = Scripted()
    with desk.working(sender) as operator:
        desk.wait_for(in_1="review", in_2="succeeded")
        assert operator.value("onceflow_operations_undecided_total", code="operation_undecided") == 1
    assert sender.subjects() == ["in_2"]
    shown = show_operation(connection, UUID(first))
    [review] = shown.reviews
    assert review["code"] == "operation_undecided"
    assert review["detail"].startswith("AttributeError: 'int'")
    assert "resolve" in shown.decisions
    resolve(connection, UUID(first), outcome="failed", decider=Decider(who="ada", reason="nothing sent", execute=True))


@pytest.mark.parametrize(
    ("former", "later", "says"),
    [
        ('"policy":"stripe"', '"policy":"of_tomorrow"', "'of_tomorrow' is not a valid Policy"),
        ('"name":"call"', '"name":"leap"', "'leap' is not a valid Role"),
    ],
)
def test_one_that_cannot_be_read_is_left_alone_and_the_others_go_on(
    desk: Desk, connection: Any, former: str, later: str, says: str
) -> None:
    [first, _] = desk.ask("in_1", "in_2")
    steps(desk, former, later)
    sender = Scripted()
    with desk.working(sender) as operator:
        desk.wait_for(in_2="succeeded")
        assert operator.value("onceflow_operations_undecided_total", code="operation_unreadable") == 1
    assert desk.states() == {"in_1": "requested", "in_2": "succeeded"}
    with pytest.raises(Refused, match=says) as refused:
        show_operation(connection, UUID(first))
    assert refused.value.code == "operation_unreadable"
    assert len(list_operations(connection, Filter(), count=5)) == 2


def test_what_was_noted_as_proved_is_kept_for_the_person(desk: Desk, connection: Any) -> None:
    [first] = desk.ask("in_1")
    change(desk, """state = 'unknown', conclusion = '{"proof": "surely", "external_id": "re_1"}'""")
    assert show_operation(connection, UUID(first)).why.startswith("What happens next cannot be told")
    with desk.working(Scripted()):
        desk.wait_for(in_1="review")
    [review] = show_operation(connection, UUID(first)).reviews
    assert '"external_id":"re_1"' in review["detail"]


def test_what_is_settled_stays_settled(desk: Desk, connection: Any) -> None:
    [first] = desk.ask("in_1")
    sender = Scripted()
    with desk.working(sender):
        desk.wait_for(in_1="succeeded")
    steps(desk, '"lookup":{', '"lookup":7,"expect":{')
    change(desk, "look_asked = true, next_attempt_at = clock_timestamp()")
    assert show_operation(connection, UUID(first)).decisions == ()
    with desk.working(Scripted()) as operator:
        desk.ask("in_2")
        desk.wait_for(in_1="succeeded", in_2="succeeded")
        assert operator.value("onceflow_operations_undecided_total", code="operation_undecided") == 1
    assert desk.operations()["in_1"]["due_seconds"] is None


def test_a_row_without_anything_is_told_too() -> None:
    planned, wrong = plan_each({"id": UUID(int=1)}, limits=LIMITS)
    assert planned is None
    assert wrong is not None
    assert (wrong.code, wrong.error) == ("operation_unreadable", "KeyError")


def test_what_cannot_be_settled_by_any_rule_is_for_a_person_with_its_evidence() -> None:
    leased = claimed(state=State.SENDING)
    step = replace(leased.operation.present, name="leap")
    strange = replace(leased, operation=replace(leased.operation, steps=(step,)))
    job = Job(purpose=Purpose.SEND, claimed=strange, step=step, attempt=1)
    evidence = Evidence(proof=Proof.DONE, external_id="re_1")
    fresh = Fresh(cancel_asked=False, look_asked=False, look_at=None, now=NOW)
    settlement = settle(job, evidence, fresh=fresh, limits=LIMITS)
    assert (settlement.row.operation.state, settlement.row.keep_lease) == (State.REVIEW, False)
    assert settlement.review == ("operation_undecided", "ValueError: 'leap' is not a valid Role")
    assert (settlement.evidence, settlement.tells) == (evidence, False)
