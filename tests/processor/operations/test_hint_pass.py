"""What webhooks say about operations, in any order with the answers of our own calls."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from onceflow_schemas.operations.evidence import Evidence, Proof
from onceflow_schemas.operations.limits import Limits
from onceflow_schemas.operations.operation import Operation, Step
from tests.processor.operations.conftest import Desk, Scripted, refund, says
from tests.processor.processor_process import wait_until


def hint(desk: Desk, subject: str, *, object_id: str, status: str, kind: str = "refund", event: str = "evt_1") -> None:
    """What the processor notes of a webhook."""
    desk.change(
        "INSERT INTO onceflow.operation_hint (operation_id, event, object, object_id, status, created)"
        " SELECT id, %s, %s, %s, %s, clock_timestamp() FROM onceflow.operation WHERE subject = %s",
        event, kind, object_id, status, subject,
    )  # fmt: skip


def looked(status: str, proof: Proof, *, number: int = 1) -> Callable[[Step, Operation], Evidence]:
    def found(_step: Step, operation: Operation) -> Evidence:
        made = refund(operation, status=status, number=number)
        return Evidence(proof=proof, from_lookup=True, external_id=made["id"], status=status, object=made)

    return found


def test_a_refund_that_its_bank_returns_is_told_a_second_time(desk: Desk) -> None:
    desk.ask("in_1")
    sender = Scripted(found=looked("failed", Proof.ENDED))
    with desk.working(sender):
        desk.wait_for(in_1="succeeded")
        external_id = desk.operations()["in_1"]["external_id"]
        hint(desk, "in_1", object_id=external_id, status="failed")
        desk.wait_for(in_1="failed")
        hint(desk, "in_1", object_id=external_id, status="failed", event="evt_2")
        wait_until(lambda: not desk.rows("SELECT FROM onceflow.operation_hint WHERE taken_at IS NULL"), "it is taken")
    assert sender.how == [{"retrieve": f"/v1/refunds/{external_id}"}]
    row = desk.operations()["in_1"]
    assert row["told"] == ["succeeded", "failed"]
    assert (row["look_asked"], row["look_at"], row["due_seconds"]) == (False, None, None)
    assert sorted(desk.outcomes()) == [("refund.failed", "in_1"), ("refund.succeeded", "in_1")]


def test_a_webhook_that_says_what_is_known_costs_no_call(desk: Desk) -> None:
    desk.ask("in_1")
    sender = Scripted()
    with desk.working(sender):
        desk.wait_for(in_1="succeeded")
        hint(desk, "in_1", object_id=desk.operations()["in_1"]["external_id"], status="succeeded")
        hint(desk, "in_1", object_id="ch_1", kind="charge", status="succeeded", event="evt_2")
        wait_until(
            lambda: not desk.rows("SELECT FROM onceflow.operation_hint WHERE taken_at IS NULL"), "both are taken"
        )
    assert sender.looked == []


def test_a_second_object_that_a_webhook_names_goes_to_review(desk: Desk) -> None:
    desk.ask("in_1")
    sender = Scripted(found=looked("succeeded", Proof.DONE, number=2))
    with desk.working(sender):
        desk.wait_for(in_1="succeeded")
        hint(desk, "in_1", object_id="re_other", status="succeeded")
        desk.wait_for(in_1="review")
    assert sender.how == [{"retrieve": "/v1/refunds/re_other"}]
    [review] = desk.rows("SELECT code FROM onceflow.review WHERE decided_at IS NULL")
    assert review["code"] == "several_objects"
    assert desk.outcomes() == [("refund.succeeded", "in_1")]


def test_of_two_objects_that_are_named_together_each_is_looked_at(desk: Desk) -> None:
    desk.ask("in_1")
    sender = Scripted()

    def found(_step: Step, operation: Operation) -> Evidence:
        assert sender.how[-1] is not None
        object_id = sender.how[-1]["retrieve"].rpartition("/")[2]
        return Evidence(proof=Proof.DONE, from_lookup=True, external_id=object_id, object={"object": "refund"})

    sender.found = found
    with desk.working(sender):
        desk.wait_for(in_1="succeeded")
        external_id = desk.operations()["in_1"]["external_id"]
        desk.change(
            "INSERT INTO onceflow.operation_hint (operation_id, event, object, object_id, status, created, noted_at)"
            " SELECT id, said.event, 'refund', said.object_id, 'pending', now(), now() + said.n * interval '1 ms'"
            " FROM onceflow.operation, (VALUES (1, 'evt_1', 're_other'), (2, 'evt_2', %s)) AS said (n, event, object_id)",
            external_id,
        )
        wait_until(lambda: len(sender.how) > 1, "both are looked at")
        wait_until(
            lambda: not desk.rows("SELECT FROM onceflow.operation_hint WHERE taken_at IS NULL"), "both are taken"
        )
    assert sender.how == [{"retrieve": "/v1/refunds/re_other"}, {"retrieve": f"/v1/refunds/{external_id}"}]
    assert desk.states() == {"in_1": "review"}
    [review] = desk.rows("SELECT code FROM onceflow.review WHERE decided_at IS NULL")
    assert review["code"] == "several_objects"


def test_a_webhook_that_comes_before_the_answer_is_settled_once(desk: Desk) -> None:
    desk.ask("in_1")
    sender = Scripted(found=looked("succeeded", Proof.DONE))
    sender.gate.clear()
    with desk.working(sender):
        wait_until(lambda: sender.on_its_way, "the call is on its way")
        hint(desk, "in_1", object_id="re_early", status="succeeded")
        sender.gate.set()
        desk.wait_for(in_1="succeeded")
        wait_until(lambda: not desk.rows("SELECT FROM onceflow.operation_hint WHERE taken_at IS NULL"), "it is taken")
    assert desk.outcomes() == [("refund.succeeded", "in_1")]


def test_what_is_said_about_anothers_operation_is_put_aside_after_a_while(desk: Desk) -> None:
    desk.change(
        "INSERT INTO onceflow.operation_hint (operation_id, event, object, object_id, status, created, noted_at)"
        " SELECT gen_random_uuid(), 'e' || n, 'refund', 're_1', 'succeeded', now(), now() - n * interval '9 minutes'"
        " FROM generate_series(1, 2) AS n"
    )
    with desk.working(Scripted()):
        wait_until(lambda: desk.rows("SELECT FROM onceflow.operation_hint WHERE taken_at IS NOT NULL"), "one is taken")
    open_hints = desk.rows("SELECT event FROM onceflow.operation_hint WHERE taken_at IS NULL")
    assert open_hints == [{"event": "e1"}]


def test_a_look_that_fails_is_made_again(desk: Desk) -> None:
    desk.ask("in_1")
    sender = Scripted(found=says(Proof.LOOKUP_FAILED, from_lookup=True))
    with desk.working(sender):
        desk.wait_for(in_1="succeeded")
        hint(desk, "in_1", object_id=desk.operations()["in_1"]["external_id"], status="failed")
        wait_until(lambda: sender.looked, "it is looked up")
        wait_until(lambda: (desk.operations()["in_1"]["due_seconds"] or 0) > 30, "it is due again")
        sender.found = looked("failed", Proof.ENDED)
        desk.change("UPDATE onceflow.operation SET next_attempt_at = clock_timestamp()")
        desk.wait_for(in_1="failed")


def test_evidence_closes_a_review(desk: Desk) -> None:
    desk.ask("in_1")
    sender = Scripted(says(Proof.KEY_MISMATCH, code="idempotency_error"))
    with desk.working(sender, limits=Limits(absence_wait=timedelta(seconds=1))):
        desk.wait_for(in_1="review")
        sender.found = looked("succeeded", Proof.DONE)
        hint(desk, "in_1", object_id="re_1", status="succeeded")
        desk.wait_for(in_1="succeeded")
    [review] = desk.rows("SELECT code, decision, decided_by FROM onceflow.review")
    assert (review["code"], review["decision"]) == ("key_mismatch", "evidence")
