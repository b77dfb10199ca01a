"""X2 to X8: what Stripe answers, or does not; the key refused; code deployed in between.

Rule: nothing that may have happened is called failed, and nothing is sent blindly; whatever goes wrong, money moves once.
"""

from __future__ import annotations

import signal
from itertools import pairwise
from random import Random
from typing import Any
from uuid import UUID

from tests.chaos.fault import fired
from tests.chaos.operation_fault import each_once, effects, fired_faults, operation_fault, posts
from tests.chaos.operations_world import API_KEY, CALL_SECONDS_MAX, Asking, OperationsWorld
from tests.checker.waiting import wait_for

RETRY_AFTER = 3
AT_ONCE = 0.7
MINUTES_20 = 1 / 3
SOME = 5

LOST: dict[str, tuple[str, dict[str, Any]]] = {
    "request_lost": ("lost_request", {}),
    "answer_reset": ("lost_answer", {}),
    "answer_truncated": ("lost_answer", {"reply": "truncated"}),
    "answer_garbage": ("lost_answer", {"reply": "garbage"}),
    "answer_never": ("lost_answer", {"reply": "hang"}),
    "answer_empty": ("empty_answer", {}),
    "error_with_200": ("error_in_success", {}),
    "redirect": ("redirect", {}),
    "html_502": ("proxy_error", {}),
    "html_504_after_the_effect": ("proxy_error", {"effect": "now", "status": 504}),
    "dependency_424": ("dependency_failed", {}),
}
"""Name -> the simulator's fault, and how it is changed."""


def one_of_each(asking: Asking, name: str, *, steps: tuple[str, ...] = ("create", "confirm"), **rule: Any) -> None:
    """A refund and a charge, each request of which goes wrong."""
    asking.fault(name, asking.refund(), **rule)
    charge = asking.charge()
    for step in steps:
        asking.fault(name, f"{charge}.{step}", **rule)


def wait_proof(world: OperationsWorld, identity: str, proof: str) -> None:
    """Wait until an attempt of an operation has proved this."""
    wait_for(lambda: proof in world.evidences(identity), limit_seconds=40, what=f"{identity} has {proof}")


def _register_lost() -> None:
    for variant, (name, rule) in LOST.items():

        def act(world: OperationsWorld, dice: Random, name: str = name, rule: dict[str, Any] = rule) -> str:
            with world.asking() as asking:
                one_of_each(asking, name, **rule)
            world.wait_states(asking.ids, "succeeded")
            each_once(world, asking.ids)
            wrong = fired_faults(world, *asking.ids)
            proofs = {proof for one in asking.ids for proof in world.evidences(one)}
            assert proofs <= {"unknown", "done", "busy"}, proofs
            return fired(len(wrong) == 3, f"{wrong}, proofs {sorted(map(str, proofs))}")

        operation_fault(f"X2/{variant}", f"Stripe: {variant.replace('_', ' ')}, each request once", every=3)(act)


_register_lost()


@operation_fault("X3/effect", "a 500 with the effect, stored for ever")
def stored_with_effect(world: OperationsWorld, dice: Random) -> str:
    """The key says 500 whenever it is asked: it is asked twice, then looked up."""
    with world.asking() as asking:
        one_of_each(asking, "server_error_with_effect", steps=("confirm",))
    refund, charge = asking.ids
    world.wait_states(asking.ids, "succeeded")
    each_once(world, asking.ids)
    sent = posts(world, refund)
    assert len(sent) == 2, sent
    assert world.evidences(refund) == ["unknown", "stored_failure"]
    return f"{len(sent)} requests of the refund, {len(posts(world, charge))} of the charge, both found"


@operation_fault("X3/nothing", "a 500 without the effect, stored for ever")
def stored_without_effect(world: OperationsWorld, dice: Random) -> str:
    """Not sent again for the whole window: the refund is for a person, the intents are closed, which is certain."""
    with world.asking() as asking:
        one_of_each(asking, "server_error", steps=("confirm",))
        created = asking.charge()
        asking.fault("server_error", f"{created}.create")
    refund, confirmed, _ = asking.ids
    for one in asking.ids:
        wait_proof(world, one, "stored_failure")
    world.hasten()
    world.age(asking.ids, hours=MINUTES_20)
    world.wait_states([refund], "review")
    world.wait_states([confirmed, created], "failed")
    assert world.review_codes(refund) == ["operation_not_found"]
    before = posts(world, *asking.ids)
    for _ in range(3):
        world.age(asking.ids, hours=4)
        world.hasten()
    assert posts(world, *asking.ids) == before
    each_once(world, asking.ids, times=0)
    return f"requests {[one.partition('.')[2] or 'refund' for one in before]}, none in the 12 hours after"


@operation_fault("X3/repaired", "a stored 500 whose effect comes late, after the review")
def repaired(world: OperationsWorld, dice: Random) -> str:
    """The webhook of the late effect is a reason to look, and the look settles the review."""
    with world.asking() as asking:
        asking.fault("server_error_repaired", asking.refund(), late_ms=12_000)
    [refund] = asking.ids
    wait_proof(world, refund, "stored_failure")
    world.age([refund], hours=MINUTES_20)
    before = world.wait_states([refund], "review", "succeeded")
    world.wait_states([refund], "succeeded")
    each_once(world, [refund])
    return f"{before[refund]} before it came, then succeeded"


@operation_fault("X4/told", "409: the key is in use")
def conflict(world: OperationsWorld, dice: Random) -> str:
    """It waits and asks again with the same key."""
    with world.asking() as asking:
        one_of_each(asking, "conflict", times=2)
    world.wait_states(asking.ids, "succeeded")
    each_once(world, asking.ids)
    assert world.evidences(asking.ids[0]) == ["busy", "busy", "done"]
    return fired(len(fired_faults(world, *asking.ids)) >= 5, f"{fired_faults(world, *asking.ids)}")


@operation_fault("X4/real", "the first request is still running when the second comes")
def in_flight(world: OperationsWorld, dice: Random) -> str:
    """The client gives the first one up, and meets it."""
    with world.asking() as asking:
        one_of_each(asking, "slow_success", steps=("create",), late_ms=CALL_SECONDS_MAX * 1000 + 5_000)
    world.wait_states(asking.ids, "succeeded")
    each_once(world, asking.ids)
    proofs = [world.evidences(one) for one in asking.ids]
    return fired(all("busy" in one for one in proofs), f"{proofs}")


LIMITS: dict[str, tuple[str, dict[str, Any]]] = {
    "retry_after": ("rate_limited", {"retry_after": RETRY_AFTER}),
    "lock_timeout": ("lock_timeout", {}),
    "should_retry_false": ("rate_limited", {"should_retry": "false"}),
    "should_retry_true_on_500": ("server_error_with_effect", {"should_retry": "true"}),
}


def _register_limits() -> None:
    for variant, (name, rule) in LIMITS.items():

        def act(world: OperationsWorld, dice: Random, name: str = name, rule: dict[str, Any] = rule) -> str:
            with world.asking() as asking:
                one_of_each(asking, name, steps=("confirm",), **rule)
            world.wait_states(asking.ids, "succeeded", hasten="retry_after" not in rule)
            each_once(world, asking.ids)
            requests = world.journal(*asking.ids)
            pauses = [then["at"] - one["at"] for one, then in pairwise(requests)]
            if "retry_after" in rule:
                # Nothing but what was on its way already comes within the time that was asked for.
                assert all(not AT_ONCE < pause < RETRY_AFTER - AT_ONCE for pause in pauses), pauses
            return fired(
                len(fired_faults(world, *asking.ids)) >= 2,
                f"{fired_faults(world, *asking.ids)}, pauses {[round(one, 1) for one in pauses]}",
            )

        operation_fault(f"X5/{variant}", f"Stripe: {variant.replace('_', ' ')}")(act)


_register_limits()


def _register_keys() -> None:
    ways: dict[str, dict[str, Any]] = {"revoked": {"revoked": True}, "too_narrow": {"permissions": ["charge_read"]}}
    for name, given in ways.items():

        def act(world: OperationsWorld, dice: Random, given: dict[str, Any] = given) -> str:
            return _refused_key(world, given)

        operation_fault(f"X6/{name}", f"the workers' key is {name.replace('_', ' ')}")(act)


def _refused_key(world: OperationsWorld, given: dict[str, Any]) -> str:
    """All operations of the account wait, none fails; with a key that works they go on."""
    world.simulator.add_key(API_KEY, **given)
    paused = "SELECT paused_reason FROM onceflow.account_budget WHERE paused_reason IS NOT NULL"
    try:
        with world.asking() as asking:
            for _ in range(SOME):
                asking.charge()
                asking.refund()
        wait_for(lambda: world.rows(paused), limit_seconds=40, what="the account is paused")
        reason = world.value(paused)
        attempts = world.value(
            "SELECT count(*) FROM onceflow.attempt WHERE operation_id = ANY(%s)", [UUID(one) for one in asking.ids]
        )
        assert set(world.states(asking.ids).values()) <= {"requested", "sending"}, world.states(asking.ids)
    finally:
        world.simulator.add_key(API_KEY)
    world.rows("UPDATE onceflow.account_budget SET blocked_until = clock_timestamp() WHERE paused_reason IS NOT NULL")
    world.wait_states(asking.ids, "succeeded")
    each_once(world, asking.ids)
    assert world.rows(paused) == []
    return fired(attempts, f"paused after {attempts} attempts of {len(asking.ids)} operations: {reason}")


_register_keys()


@operation_fault("X7", "a decline and an invalid request are failures, told once and final")
def refused(world: OperationsWorld, dice: Random) -> str:
    """They are never called again: not by time, not by a new worker, not by being asked for again."""
    with world.asking() as asking:
        asking.charge(card="pm_card_chargeDeclinedInsufficientFunds")
        asking.refund(charge="ch_of_nobody")
        asking.refund(amount=1_000_000)
    world.wait_states(asking.ids, "failed")
    sent = posts(world, *asking.ids)
    world.age(asking.ids, hours=25)
    world.operator.stop()
    world.restart("operator")
    with world.asking() as later:
        later.charge()
    world.wait_states(later.ids, "succeeded")
    assert posts(world, *asking.ids) == sent
    each_once(world, asking.ids, times=0)
    errors = world.rows(
        "SELECT last_error FROM onceflow.operation WHERE id = ANY(%s) ORDER BY seq", [UUID(one) for one in asking.ids]
    )
    return fired(len(sent) == 5, f"{[error for (error,) in errors]}, {len(sent)} requests")


DEPLOYED = """
from onceflow import Charge, Handlers, StripeCall

handlers = Handlers()


@handlers.effect("take_card")
def take_card(amount: int, currency: str, payment_method: str) -> Charge:
    return Charge(amount=amount + 1, currency="eur", payment_method=payment_method, description="deployed later")


@handlers.effect("give_part_back")
def give_part_back(charge: str, amount: int) -> StripeCall:
    return StripeCall.refund(charge=charge, amount=amount + 1, metadata={"deployed": "later"})


@take_card.settled
@give_part_back.settled
def note_settlement(settled, tx):
    tx.execute("INSERT INTO shop.settlement (operation, state) VALUES (%s, %s)", [settled.id, settled.state])
    tx.outcome(f"{settled.effect}.{settled.state}", key=settled.subject, data={"operation": settled.id})
"""


@operation_fault("X8/deploy", "other code is deployed between two attempts", points=("operator.after_answer",))
def deploy(world: OperationsWorld, dice: Random) -> str:
    """What was frozen is sent again, byte for byte: no key mismatch, the amount that was asked for."""
    (world.folder / "deployed.py").write_text(DEPLOYED)
    worker = world.operator
    worker.freeze()
    worker.arm("operator.after_answer", "kill9", at=dice.randrange(1, 3))
    with world.asking() as asking:
        one_of_each(asking, "lost_answer")
    worker.thaw()
    firing = worker.wait_fired()
    assert worker.wait_ended() == -signal.SIGKILL
    world.end_leases()
    world.join("operator", processor__handlers="deployed:handlers")
    world.wait_states(asking.ids, "succeeded")
    each_once(world, asking.ids)
    proofs = [proof for one in asking.ids for proof in world.evidences(one)]
    assert "key_mismatch" not in proofs
    return f"{firing}; the new code's worker settled both, proofs {proofs}"


@operation_fault("X8/edited", "somebody edits the frozen amount between two attempts")
def edited(world: OperationsWorld, dice: Random) -> str:
    """Stripe refuses the key: an earlier request ran, and what it made is not what the row asks for, so it is for a person."""
    with world.asking() as asking:
        asking.fault("conflict", asking.refund(amount=501), times=None, skip=1)
        asking.fault("lost_answer", asking.ids[0])
    [refund] = asking.ids
    wait_proof(world, refund, "unknown")
    edit = "UPDATE onceflow.operation SET steps = replace(steps::text, %s, %s)::json WHERE id = %s"
    world.rows(edit, '"amount":501', '"amount":502', UUID(refund))
    world.script()
    world.wait_states([refund], "review")
    world.rows(edit, '"amount":502', '"amount":501', UUID(refund))
    assert effects(world, refund) == 1
    return fired(world.review_codes(refund) == ["answer_strange"], f"{world.evidences(refund)}")
