"""Operations on their whole way: leased, sent, settled, told; and what becomes of them when something goes wrong."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from typing import Any

import pytest

from onceflow_processor.handlers import Handlers
from onceflow_processor.operations.worker import SHORT_POLL_SECONDS, ahead
from onceflow_schemas.operations.calls import StripeCall
from onceflow_schemas.operations.evidence import Evidence, Proof
from onceflow_schemas.operations.operation import Operation, Step
from tests.processor.operations.conftest import Desk, Scripted, done, in_turn, refund, says
from tests.processor.processor_process import wait_until


def test_an_operation_is_sent_once_and_settled_with_its_outcome(desk: Desk) -> None:
    [asked] = desk.ask("in_1")
    sender = Scripted()
    with desk.working(sender):
        desk.wait_for(in_1="succeeded")
    assert sender.sent == [("in_1", asked)]
    row = desk.operations()["in_1"]
    assert row["external_id"] is not None
    assert row["lease_owner"] is None
    assert row["due_seconds"] is None
    assert row["told"] == ["succeeded"]
    [attempt] = desk.rows("SELECT * FROM onceflow.attempt")
    assert (attempt["n"], attempt["evidence"], attempt["http_status"]) == (1, "done", 200)
    assert attempt["sent_at"] <= attempt["settled_at"]
    assert desk.outcomes() == [("refund.succeeded", "in_1")]
    assert desk.rows("SELECT * FROM public.told") == [{"operation": "in_1", "state": "succeeded"}]
    assert desk.rows("SELECT * FROM onceflow.batch_guard") == []


def test_a_refusal_is_a_failure_that_is_told_and_never_sent_again(desk: Desk) -> None:
    desk.ask("in_1", "in_2")

    def answer(step: Step, operation: Operation) -> Evidence:
        if operation.subject == "in_1":
            return Evidence(proof=Proof.REFUSED, code="charge_already_refunded", http_status=400)
        return done(step, operation)

    sender = Scripted(answer)
    with desk.working(sender):
        desk.wait_for(in_1="failed", in_2="succeeded")
    assert sorted(sender.subjects()) == ["in_1", "in_2"]
    assert sorted(desk.outcomes()) == [("refund.failed", "in_1"), ("refund.succeeded", "in_2")]


def test_what_is_unknown_is_sent_again_with_its_key_and_succeeds_once(desk: Desk) -> None:
    [asked] = desk.ask("in_1")
    sender = Scripted(in_turn(says(Proof.UNKNOWN, code="deadline"), done))
    with desk.working(sender):
        desk.wait_for(in_1="succeeded")
    assert sender.sent == [("in_1", asked)] * 2
    rows = desk.rows("SELECT n, evidence FROM onceflow.attempt ORDER BY n")
    assert [(row["n"], row["evidence"]) for row in rows] == [(1, "unknown"), (2, "done")]
    assert desk.outcomes() == [("refund.succeeded", "in_1")]


def test_the_attempt_is_committed_and_no_transaction_is_open_during_the_call(desk: Desk) -> None:
    desk.ask("in_1")
    seen: list[tuple[list[str], list[dict[str, Any]]]] = []

    def answer(step: Step, operation: Operation) -> Evidence:
        active = desk.rows(
            "SELECT application_name, state FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'operator%%'"
        )
        seen.append(([row["state"] for row in active], desk.rows("SELECT evidence, fence FROM onceflow.attempt")))
        return done(step, operation)

    with desk.working(Scripted(answer), poll_seconds=10):
        desk.wait_for(in_1="succeeded")
    [(states, attempts)] = seen
    assert states == ["idle", "idle"]
    assert attempts == [{"evidence": None, "fence": 1}]


def test_two_workers_never_send_one_operation_twice(desk: Desk) -> None:
    desk.ask(*[f"in_{n}" for n in range(100)])
    senders = [Scripted(latency_seconds=0.005), Scripted(latency_seconds=0.005)]
    for sender in senders:
        # Held until both are at work: the first to come would have done all of them on a busy machine.
        sender.gate.clear()
    with desk.working(senders[0], lease_seconds=60.0), desk.working(senders[1], lease_seconds=60.0):
        wait_until(lambda: all(sender.on_its_way for sender in senders), "both have calls on their way")
        for sender in senders:
            sender.gate.set()
        wait_until(lambda: set(desk.states().values()) == {"succeeded"}, "all have succeeded")
    sent = senders[0].subjects() + senders[1].subjects()
    assert sorted(sent) == sorted(f"in_{n}" for n in range(100))
    assert len(desk.outcomes()) == 100
    assert {row["n"] for row in desk.rows("SELECT n FROM onceflow.attempt")} == {1}


def test_operations_of_one_order_key_go_one_at_a_time_in_their_order(desk: Desk) -> None:
    for number in range(6):
        desk.ask(f"in_{number}", order_key="customer")
    desk.ask("free")
    sender = Scripted(latency_seconds=0.02)
    other = Scripted(latency_seconds=0.02)
    with desk.working(sender), desk.working(other):
        wait_until(lambda: set(desk.states().values()) == {"succeeded"}, "all have succeeded")
    attempts = desk.rows(
        "SELECT subject, sent_at, attempt.settled_at FROM onceflow.attempt JOIN onceflow.operation ON id = operation_id"
        " WHERE order_key IS NOT NULL ORDER BY sent_at"
    )
    assert [row["subject"] for row in attempts] == [f"in_{number}" for number in range(6)]
    assert all(one["settled_at"] <= after["sent_at"] for one, after in pairwise(attempts))


def test_one_in_review_holds_those_after_it_and_no_others(desk: Desk) -> None:
    desk.ask("in_1", "in_2", order_key="customer")
    desk.ask("in_3")
    strange = says(Proof.STRANGE, detail="another amount")
    sender = Scripted(lambda step, op: strange(step, op) if op.subject == "in_1" else done(step, op))
    with desk.working(sender):
        desk.wait_for(in_1="review", in_3="succeeded")
    assert sorted(sender.subjects()) == ["in_1", "in_3"]
    assert desk.states()["in_2"] == "requested"
    [review] = desk.rows("SELECT code, detail, evidence, decided_at FROM onceflow.review")
    evidence = {"proof": "strange", "detail": "another amount"}
    assert review == {"code": "answer_strange", "detail": "another amount", "evidence": evidence, "decided_at": None}


def test_a_refused_key_pauses_the_account_and_fails_nothing(desk: Desk) -> None:
    desk.ask(*[f"in_{n}" for n in range(20)])
    desk.ask("other", account="acct_other")
    refused = says(Proof.UNAUTHORISED, detail="the key lacks the permission rak_charge_write", http_status=403)
    sender = Scripted(lambda step, op: done(step, op) if op.account == "acct_other" else refused(step, op))
    with desk.working(sender, concurrency=2, accounts=("acct_test", "acct_other")) as operator:
        desk.wait_for(other="succeeded")
        wait_until(lambda: operator.value("onceflow_operations_account_paused", account="acct_test"), "it is paused")
        assert len(sender.sent) <= 1 + 6
        states = desk.states()
        assert {states[f"in_{n}"] for n in range(20)} <= {"requested", "sending"}
        [budget] = desk.rows("SELECT * FROM onceflow.account_budget WHERE account = 'acct_test'")
        assert budget["paused_reason"] == "the key lacks the permission rak_charge_write"
        assert budget["refusals"] >= 1
        # The key is mended, and a person need not wait for the pause.
        sender.answer = done
        desk.change("UPDATE onceflow.account_budget SET blocked_until = clock_timestamp()")
        desk.change("UPDATE onceflow.operation SET next_attempt_at = clock_timestamp() WHERE state = 'requested'")
        wait_until(lambda: set(desk.states().values()) == {"succeeded"}, "all have succeeded")
    [budget] = desk.rows("SELECT * FROM onceflow.account_budget WHERE account = 'acct_test'")
    assert (budget["paused_reason"], budget["refusals"]) == (None, 0)


def test_a_limit_that_was_met_blocks_the_account_as_long_as_it_asks(desk: Desk) -> None:
    desk.ask("in_1")
    with desk.working(Scripted(says(Proof.LIMITED, code="global-rate", retry_after_seconds=30.0, http_status=429))):
        wait_until(lambda: desk.rows("SELECT FROM onceflow.attempt WHERE evidence = 'limited'"), "it was settled")
    [budget] = desk.rows(
        "SELECT extract(epoch FROM blocked_until - clock_timestamp())::float8 AS seconds, paused_reason"
        " FROM onceflow.account_budget"
    )
    assert 20 < budget["seconds"] <= 30
    assert budget["paused_reason"] is None
    assert desk.states() == {"in_1": "requested"}


def test_two_workers_share_an_accounts_budget(desk: Desk) -> None:
    desk.ask(*[f"in_{n}" for n in range(40)])
    senders = [Scripted(), Scripted()]
    begun = time.monotonic()
    with (
        desk.working(senders[0], requests_per_second=20.0, burst=5),
        desk.working(senders[1], requests_per_second=20.0, burst=5),
    ):
        wait_until(lambda: set(desk.states().values()) == {"succeeded"}, "all have succeeded")
    assert time.monotonic() - begun >= (40 - 5) / 20.0
    assert len(senders[0].sent) + len(senders[1].sent) == 40


def test_a_worker_that_lacks_an_effect_leaves_its_operations_alone(desk: Desk) -> None:
    other = Handlers()

    @other.effect("another")
    def another(charge: str, amount: int) -> StripeCall:
        return StripeCall.post("/v1/refunds", charge=charge, amount=amount)

    desk.ask("in_1")
    desk.ask("in_2", effect=another)
    sender = Scripted()
    with desk.working(sender, handlers=other):
        desk.wait_for(in_2="succeeded")
    assert sender.subjects() == ["in_2"]
    assert desk.states()["in_1"] == "requested"


def test_stopping_settles_what_is_on_its_way_and_begins_nothing(desk: Desk) -> None:
    desk.ask(*[f"in_{n}" for n in range(30)])
    sender = Scripted()
    sender.gate.clear()
    operator = desk.operator(sender, concurrency=4).start()
    wait_until(lambda: sender.on_its_way == 4, "four calls are on their way")
    operator.stopping.set()
    wait_until(operator.callers._stopping.is_set, "it stops")
    sender.gate.set()
    operator.stop()
    assert len(sender.sent) == 4
    states = list(desk.states().values())
    assert states.count("succeeded") == 4
    assert states.count("requested") == 26
    assert desk.rows("SELECT FROM onceflow.operation WHERE lease_owner IS NOT NULL") == []
    assert {row["evidence"] for row in desk.rows("SELECT evidence FROM onceflow.attempt")} == {"done", "not_sent"}


def test_a_database_that_goes_away_and_comes_back_loses_nothing(desk: Desk) -> None:
    desk.ask("in_1", "in_2")
    sender = Scripted()
    sender.gate.clear()
    with desk.working(sender) as operator:
        wait_until(lambda: sender.on_its_way == 2, "the calls are on their way")
        desk.change(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE 'operator%%'"
        )
        sender.gate.set()
        desk.wait_for(in_1="succeeded", in_2="succeeded")
        assert operator.value("onceflow_operations_trouble_total", kind="database_away") >= 1
        assert operator.value("onceflow_operations_database_up") == 1
    assert sorted(sender.subjects()) == ["in_1", "in_2"]
    assert len(desk.outcomes()) == 2


def test_a_notice_wakes_an_idle_worker(desk: Desk) -> None:
    sender = Scripted()
    with desk.working(sender, poll_seconds=20.0) as operator:
        wait_until(lambda: operator.worker._watch_at > 0, "it has had its first turn")
        operator.worker._recent_until = 0.0
        begun = time.monotonic()
        desk.ask("in_1")
        desk.change("NOTIFY onceflow_operations")
        desk.wait_for(in_1="succeeded")
        assert time.monotonic() - begun < 10.0


def test_polls_are_short_after_work_and_slow_when_idle(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    operator = desk.operator(Scripted(), poll_seconds=20.0)
    wait = operator.waiting.wait

    def noted(seconds: float) -> bool:
        waits.append(seconds)
        return wait(min(seconds, 0.1))

    monkeypatch.setattr(operator.waiting, "wait", noted)
    operator.start()
    wait_until(lambda: waits[-1:] == [20.0], "it is idle")
    desk.ask("in_1")
    desk.wait_for(in_1="succeeded")
    wait_until(lambda: waits[-1] == SHORT_POLL_SECONDS, "it looks again soon")
    operator.worker._recent_until = 0.0
    wait_until(lambda: waits[-1] == 20.0, "it is idle again")
    operator.stop()


def test_an_account_that_is_not_served_here_is_left_alone(desk: Desk) -> None:
    desk.ask("in_1", account="acct_other")
    desk.ask("in_2")
    sender = Scripted()
    with desk.working(sender):
        desk.wait_for(in_2="succeeded")
    assert sender.subjects() == ["in_2"]


def test_a_bug_in_a_sender_leaves_its_operation_unknown_and_stops_no_other(desk: Desk) -> None:
    desk.ask("in_1", "in_2")

    def broken(_step: Step, operation: Operation) -> Evidence:
        if operation.subject == "in_1":
            raise AssertionError("a bug")
        made = refund(operation)
        return Evidence(proof=Proof.DONE, external_id=made["id"], status="succeeded", object=made)

    with desk.working(Scripted(broken, broken)):
        desk.wait_for(in_1="unknown", in_2="succeeded")
    [row] = desk.rows("SELECT last_error FROM onceflow.operation WHERE subject = 'in_1'")
    assert "the sender met a bug: AssertionError" in row["last_error"]


def test_a_bug_in_a_look_up_teaches_nothing_and_stops_no_other(desk: Desk) -> None:
    desk.ask("in_1")

    def pending(_step: Step, operation: Operation) -> Evidence:
        made = refund(operation, status="pending")
        return Evidence(proof=Proof.PROCESSING, external_id=made["id"], status="pending", object=made)

    def broken(_step: Step, _operation: Operation) -> Evidence:
        raise KeyError("a bug")

    with desk.working(Scripted(pending, broken)):
        desk.wait_for(in_1="pending")
        desk.change("UPDATE onceflow.operation SET next_attempt_at = clock_timestamp()")
        failed = "SELECT FROM onceflow.operation WHERE strpos(last_error, 'the sender met a bug: KeyError') > 0"
        wait_until(lambda: bool(desk.rows(failed)), "the look-up has failed")
        desk.ask("in_2")
        desk.wait_for(in_1="pending", in_2="pending")


def test_a_pending_operation_is_looked_up_until_it_is_decided(desk: Desk) -> None:
    desk.ask("in_1")

    def pending(_step: Step, operation: Operation) -> Evidence:
        made = refund(operation, status="pending")
        return Evidence(proof=Proof.PROCESSING, external_id=made["id"], status="pending", object=made)

    def found(_step: Step, operation: Operation) -> Evidence:
        made = refund(operation)
        return Evidence(proof=Proof.DONE, from_lookup=True, external_id=made["id"], status="succeeded", object=made)

    sender = Scripted(pending, found)
    with desk.working(sender):
        desk.wait_for(in_1="pending")
        assert desk.outcomes() == []
        desk.change("UPDATE onceflow.operation SET next_attempt_at = clock_timestamp()")
        desk.wait_for(in_1="succeeded")
    assert len(sender.sent) == 1
    assert sender.looked == ["in_1"]
    assert len(desk.rows("SELECT FROM onceflow.attempt")) == 1


def test_threads_end_with_the_worker(desk: Desk) -> None:
    desk.ask("in_1")
    before = threading.active_count()
    with desk.working(Scripted()):
        desk.wait_for(in_1="succeeded")
    wait_until(lambda: threading.active_count() == before, "its threads have ended")


def test_many_behind_one_hold_up_nobody_else(desk: Desk) -> None:
    strange = says(Proof.STRANGE, detail="another amount")
    desk.ask("first", order_key="customer")
    desk.ask(*[f"in_{n}" for n in range(600)], order_key="customer")
    desk.ask("free")
    sender = Scripted(lambda step, op: strange(step, op) if op.subject == "first" else done(step, op))
    with desk.working(sender):
        desk.wait_for(first="review", free="succeeded")
    assert sorted(sender.subjects()) == ["first", "free"]


def test_the_next_in_order_follows_at_once(desk: Desk) -> None:
    desk.ask("in_1", "in_2", "in_3", order_key="customer")
    begun = time.monotonic()
    with desk.working(Scripted()):
        desk.wait_for(in_1="succeeded", in_2="succeeded", in_3="succeeded")
    assert time.monotonic() - begun < 20.0


def test_how_many_are_leased_ahead_follows_what_a_round_settles() -> None:
    assert ahead(32, before=0, settled=0) == 16
    assert ahead(32, before=16, settled=20) == 40
    assert ahead(32, before=40, settled=90) == 96
    assert ahead(32, before=96, settled=3) == 72
    assert ahead(32, before=18, settled=1) == 16
    assert ahead(1, before=0, settled=0) == 0
