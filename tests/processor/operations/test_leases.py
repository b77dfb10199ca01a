"""Leases: kept during long calls, lost without harm, asked about right before each send."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from onceflow_processor.operations.ledger import Ledger
from onceflow_producer import failpoint
from onceflow_schemas.operations.evidence import Evidence, Proof
from onceflow_schemas.operations.operation import Operation, Step
from tests.processor.operations.conftest import Desk, Scripted, says
from tests.processor.processor_process import wait_until


def test_a_long_call_keeps_its_lease(desk: Desk) -> None:
    desk.ask("in_1")
    slow = Scripted(seconds_max=0.5)
    slow.gate.clear()
    quick = Scripted()
    with desk.working(slow, lease_seconds=4.0) as first:
        wait_until(lambda: slow.on_its_way, "the call is on its way")
        with desk.working(quick, lease_seconds=4.0):
            fence = desk.operations()["in_1"]["fence"]
            begun = time.monotonic()
            wait_until(lambda: time.monotonic() - begun > 8.5, "two leases have passed")
            assert desk.operations()["in_1"]["fence"] == fence
            slow.gate.set()
            desk.wait_for(in_1="succeeded")
    assert quick.sent == []
    assert first.value("onceflow_operations_fenced_total") == 0


class OneIsSlow(Scripted):
    async def send(self, step: Step, operation: Operation) -> Evidence:
        if operation.subject == "slow":
            return await super().send(step, operation)
        return self.answer(step, operation)


def test_leases_are_renewed_before_the_lanes_are_compared_which_may_take_as_long(desk: Desk) -> None:
    desk.change("UPDATE onceflow.lane SET state = 'behind'")
    desk.ask("slow", "in_1")
    sender = OneIsSlow()
    sender.gate.clear()
    left_seconds: list[float] = []

    def compare(_connection: object) -> None:
        query = "SELECT extract(epoch FROM lease_until - clock_timestamp())::float8 AS seconds FROM onceflow.operation"
        left_seconds.extend(row["seconds"] for row in desk.rows(f"{query} WHERE subject = 'slow'"))

    operator = desk.operator(sender, lease_seconds=30.0)
    operator.worker._check_lanes = compare
    operator.start()
    wait_until(lambda: left_seconds, "the lanes are compared, two seconds after one was found closed")
    sender.gate.set()
    operator.stop()
    assert left_seconds[0] > 29.0


def test_a_late_answer_of_a_lost_lease_changes_nothing(desk: Desk) -> None:
    desk.ask("in_1")
    zombie, healthy = Scripted(), Scripted()
    zombie.answer = says(Proof.REFUSED, code="late")
    zombie.gate.clear()
    with desk.working(zombie, lease_seconds=60) as first:
        wait_until(lambda: zombie.on_its_way, "the call is on its way")
        # As if the worker had been stopped for longer than its lease.
        desk.change(
            "UPDATE onceflow.operation SET lease_until = clock_timestamp(), next_attempt_at = clock_timestamp()"
        )
        with desk.working(healthy, lease_seconds=60):
            desk.wait_for(in_1="succeeded")
            row = desk.operations()["in_1"]
            zombie.gate.set()
            wait_until(lambda: first.value("onceflow_operations_fenced_total"), "the late answer was refused")
    assert desk.operations()["in_1"] == row
    assert desk.outcomes() == [("refund.succeeded", "in_1")]
    rows = desk.rows("SELECT n, evidence FROM onceflow.attempt ORDER BY n")
    assert [(one["n"], one["evidence"]) for one in rows] == [(1, None), (2, "done")]
    assert [key for _, key in zombie.sent] == [key for _, key in healthy.sent]


def test_a_worker_that_was_stopped_before_the_send_asks_again(desk: Desk) -> None:
    desk.ask("in_1")
    sender = Scripted()
    stopped: list[str] = []

    def lose(name: str) -> None:
        # Between the commit of the attempt and the last look, somebody else takes the operation over.
        if name == "operator.before_recheck" and not stopped:
            stopped.append(name)
            desk.change("UPDATE onceflow.operation SET lease_owner = 'somebody', fence = fence + 1")

    failpoint.install(lose)
    try:
        with desk.working(sender) as operator:
            wait_until(lambda: operator.value("onceflow_operations_fenced_total"), "the lease was found lost")
    finally:
        failpoint.install(None)
    assert sender.sent == []
    assert desk.states() == {"in_1": "sending"}


def test_a_check_that_is_too_old_is_made_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.ask("in_1")
    moments: list[float] = []

    def clock() -> float:
        # The callers' first look at the clock comes after a long stop.
        moments.append(0.0)
        return time.monotonic() + (100.0 if len(moments) == 1 else 0.0)

    monkeypatch.setattr("onceflow_processor.operations.callers.host_clock", clock)
    monkeypatch.setattr("onceflow_processor.operations.worker.host_clock", time.monotonic)
    sender = Scripted()
    with desk.working(sender):
        desk.wait_for(in_1="succeeded")
    assert sender.subjects() == ["in_1"]
    assert len(moments) == 2
    assert len(desk.rows("SELECT FROM onceflow.attempt")) == 1


def test_a_send_whose_window_has_ended_since_is_not_made(desk: Desk) -> None:
    desk.ask("in_1")
    sender = Scripted()

    def age(name: str) -> None:
        if name == "operator.before_recheck":
            failpoint.install(None)
            operator.worker._to_send[0].send_before = datetime(2020, 1, 1, tzinfo=UTC)

    failpoint.install(age)
    operator = desk.operator(sender)
    try:
        operator.start()
        wait_until(lambda: desk.rows("SELECT FROM onceflow.attempt WHERE evidence = 'not_sent'"), "it was not sent")
        assert sender.sent == []
        desk.wait_for(in_1="succeeded")
    finally:
        failpoint.install(None)
        operator.stop()


def test_an_operation_of_a_dead_worker_is_unknown_and_sent_again_with_its_key(desk: Desk) -> None:
    [asked] = desk.ask("in_1")
    dead = desk.operator(Scripted(), owner="dead")
    opened = dead.open()
    ledger = Ledger(opened.ledger, opened.side, settings=dead.worker._settings.ledger)
    ledger.open()
    assert len(ledger.claim(5, held=[]).jobs) == 1
    opened.close()
    assert desk.states() == {"in_1": "sending"}
    sender = Scripted()
    with desk.working(sender):
        desk.change(
            "UPDATE onceflow.operation SET lease_until = clock_timestamp(), next_attempt_at = clock_timestamp()"
        )
        desk.wait_for(in_1="succeeded")
    assert sender.sent == [("in_1", asked)]
    rows = desk.rows("SELECT n, evidence, owner FROM onceflow.attempt ORDER BY n")
    assert [(one["n"], one["evidence"]) for one in rows] == [(1, None), (2, "done")]


def test_a_lease_of_a_jumped_clock_is_waited_for_by_nobody(desk: Desk) -> None:
    desk.ask("in_1")
    desk.change(
        "UPDATE onceflow.operation SET lease_owner = 'dead', lease_until = clock_timestamp() + interval '1 hour',"
        " next_attempt_at = clock_timestamp() + interval '1 hour'"
    )
    with desk.working(Scripted()):
        desk.wait_for(in_1="succeeded")
