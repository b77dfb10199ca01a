"""X9, X10, T1: keys that are forgotten, workers that sleep for a day, a restored database, clocks that jump.

Rule: after the safe window every send follows a look-up.  What no client can keep from happening (a worker stopped between
its last check and the socket) is harmless for a charge, and found and put before a person for a refund.
"""

from __future__ import annotations

import signal
from random import Random
from uuid import UUID

from tests.chaos.fault import fired
from tests.chaos.operation_fault import each_once, effects, operation_fault, posts
from tests.chaos.operations_world import OperationsWorld
from tests.chaos.part import Part
from tests.checker.waiting import wait_for

DAY_AND_MORE = 25.0
THREE_DAYS = 72.0
HOUR = 1.0
TOGETHER_MS = 400
"""So long each answer takes, that all first requests are on their way before one comes."""

SHIFTS = {"+1h": HOUR, "-1h": -HOUR, "+25h": DAY_AND_MORE}
AFTER_ANSWER, BEFORE_RECHECK, BEFORE_SEND = (
    f"operator.{name}" for name in ("after_answer", "before_recheck", "before_send")
)


def kill_after_answer(
    world: OperationsWorld, *, fault: str | None = None, charges: int = 1, refunds: int = 1
) -> list[str]:
    """Ask, and kill the worker when the first answer is there; nobody works then. Returns the ids, refunds first."""
    worker = world.operator
    world.simulator.set(latency_ms=TOGETHER_MS)
    worker.freeze()
    worker.arm(AFTER_ANSWER, "kill9")
    with world.asking() as asking:
        for _ in range(refunds):
            asking.refund()
        for _ in range(charges):
            asking.charge()
        for one in asking.ids if fault else []:
            for key in (one, f"{one}.create", f"{one}.confirm"):
                asking.fault(str(fault), key)
    worker.thaw()
    worker.wait_fired()
    assert worker.wait_ended() == -signal.SIGKILL
    worker.disarm()
    world.simulator.set(latency_ms=0)
    return asking.ids


def _late(world: OperationsWorld, ids: list[str], *, hours: float = DAY_AND_MORE) -> list[str]:
    """Let a day pass with everything dead, and start again; returns the keys that were sent before."""
    before = posts(world, *ids)
    world.end_leases()
    world.age(ids, hours=hours)
    world.restart("operator")
    return before


@operation_fault("X9/late", "the retry comes a day later, the effect was there", points=(AFTER_ANSWER,))
def late_with_effect(world: OperationsWorld, dice: Random) -> str:
    """Found by a look-up; the refund is not sent again, and of the charge only what has not happened."""
    ids = kill_after_answer(world, charges=1, refunds=1)
    before = _late(world, ids)
    world.wait_states(ids, "succeeded")
    each_once(world, ids)
    after = posts(world, *ids)[len(before) :]
    return fired(set(before).isdisjoint(after), f"sent before: {_words(before)}, a day later: {_words(after)}")


@operation_fault("X9/nothing", "the retry comes a day later, nothing had arrived", points=(AFTER_ANSWER,))
def late_without_effect(world: OperationsWorld, dice: Random) -> str:
    """The refund is for a person; an unconfirmed intent may be made again."""
    ids = kill_after_answer(world, fault="lost_request")
    refund, charge = ids
    before = _late(world, ids)
    sent_before = f"{refund}" in before
    world.wait_states([charge], "succeeded")
    world.wait_states([refund], "review" if sent_before else "succeeded")
    assert effects(world, refund) == (0 if sent_before else 1)
    each_once(world, [charge])
    return f"sent before: {_words(before)}; the refund: {world.states([refund])[refund]} {world.review_codes(refund)}"


@operation_fault("X9/restored", "a backup from before the send is put back, a day later", points=(AFTER_ANSWER,))
def restored(world: OperationsWorld, dice: Random) -> str:
    """No attempt row proves nothing then: it is looked up."""
    [refund] = kill_after_answer(world, charges=0, refunds=1)
    before = posts(world, refund)
    world.rows("DELETE FROM onceflow.attempt WHERE operation_id = %s", UUID(refund))
    world.rows(
        "UPDATE onceflow.operation SET state = 'requested', lease_owner = NULL, lease_until = NULL WHERE id = %s",
        UUID(refund),
    )
    world.rows("UPDATE onceflow.deployment SET restores = restores + 1")
    world.restored.add(refund)
    world.age([refund], hours=DAY_AND_MORE)
    world.restart("operator")
    world.wait_states([refund], "succeeded")
    each_once(world, [refund])
    return fired(posts(world, refund) == before, f"sent {len(before)} times before, not since; found")


@operation_fault("X9/never_sent", "asked for three days ago, never sent")
def never_sent(world: OperationsWorld, dice: Random) -> str:
    """It is looked up, then sent as any other."""
    world.operator.freeze()
    with world.asking() as asking:
        asking.refund()
        asking.charge()
    world.age(asking.ids, hours=THREE_DAYS)
    world.operator.thaw()
    world.wait_states(asking.ids, "succeeded")
    each_once(world, asking.ids)
    return f"looked up, then sent: {_words(posts(world, *asking.ids))}"


@operation_fault(
    "X9/asleep", "the worker sleeps for a day before its last check", soak="operations_clock", points=(BEFORE_RECHECK,)
)
def asleep_before_the_check(world: OperationsWorld, dice: Random) -> str:
    """The check says that the window is over: nothing is sent before a look-up."""
    worker = world.operator
    worker.freeze()
    worker.arm(BEFORE_RECHECK, "stop")
    with world.asking() as asking:
        asking.refund()
        asking.charge()
    worker.thaw()
    firing = worker.wait_fired()
    worker.wait_stopped()
    jump(world, asking.ids, "+25h")
    before = posts(world, *asking.ids)
    worker.thaw()
    world.wait_states(asking.ids, "succeeded", hasten=False)
    jump(world, asking.ids, "+0")
    each_once(world, asking.ids)
    return fired(before == [], f"{firing}; looked up, then sent")


def jump(world: OperationsWorld, ids: list[str], shift: str) -> None:
    """Shift the database's clock where libfaketime is there; else let time pass for these operations, whose leases end."""
    if world.clock_file is not None:
        world.clock_file.write_text(shift)
        if SHIFTS.get(shift, 0.0) >= DAY_AND_MORE:
            world.simulator.prune_keys()
            world.close_windows(ids)
    elif shift in SHIFTS:
        world.age(ids, hours=SHIFTS[shift])
        world.end_leases()


def stopped_before_send(world: OperationsWorld, *, refund: bool, at: int) -> tuple[Part, str]:
    """One operation, whose worker is stopped between the last check and the socket of its ``at``-th call."""
    worker = world.operator
    worker.freeze()
    worker.arm(BEFORE_SEND, "stop", at=at)
    with world.asking() as asking:
        made = asking.refund() if refund else asking.charge()
    worker.thaw()
    worker.wait_fired()
    worker.wait_stopped()
    world.asleep.add(made)
    return worker, made


def _wakes(world: OperationsWorld, worker: Part, made: str) -> list[str]:
    """The sleeper wakes up and sends; what it was answered is refused, for its lease is gone."""
    before = posts(world, made)
    refused = len(worker.log_entries("late_answer_refused")) + len(worker.log_entries("lease_lost"))
    worker.thaw()
    wait_for(lambda: len(posts(world, made)) > len(before), limit_seconds=40, what="the sleeper sends")
    wait_for(
        lambda: len(worker.log_entries("late_answer_refused")) + len(worker.log_entries("lease_lost")) > refused,
        limit_seconds=40,
        what="its late answer is refused",
    )
    return posts(world, made)[len(before) :]


def _register_sleepers() -> None:
    for name, at in (("create", 1), ("confirm", 2)):

        def act(world: OperationsWorld, dice: Random, at: int = at) -> str:
            worker, charge = stopped_before_send(world, refund=False, at=at)
            world.join("operator")
            world.end_leases()
            world.wait_states([charge], "succeeded")
            world.age([charge], hours=DAY_AND_MORE)
            late = _wakes(world, worker, charge)
            world.settle()
            each_once(world, [charge])
            ledger = world.simulator.ledger()
            made, closed = ledger.count("intent", charge), ledger.count("cancel", charge)
            assert made - closed == 1, (made, closed)
            return f"a day later it sent {_words(late)}: one charge, {made} intents, {closed} canceled"

        what = f"a worker sleeps for a day between its check and the {name}; another has charged"
        operation_fault(f"X10/charge_{name}", what, points=(BEFORE_SEND,))(act)


_register_sleepers()


@operation_fault(
    "X10/refund", "a worker sleeps for a day between check and refund; another has refunded", points=(BEFORE_SEND,)
)
def doubled_refund(world: OperationsWorld, dice: Random) -> str:
    """Nothing at Stripe keeps the second one from happening: it is found by its webhook, and put before a person."""
    worker, refund = stopped_before_send(world, refund=True, at=1)
    world.join("operator")
    world.end_leases()
    world.wait_states([refund], "succeeded")
    world.age([refund], hours=DAY_AND_MORE)
    _wakes(world, worker, refund)
    world.wait_states([refund], "review")
    assert world.review_codes(refund) == ["several_objects"]
    return fired(effects(world, refund) == 2, f"2 refunds, in review: {world.review_codes(refund)}")


@operation_fault("X10/refund_after_review", "the sleeper's refund comes after it was not found", points=(BEFORE_SEND,))
def late_refund(world: OperationsWorld, dice: Random) -> str:
    """A late webhook overturns the absence."""
    worker, refund = stopped_before_send(world, refund=True, at=1)
    world.age([refund], hours=DAY_AND_MORE)
    world.join("operator")
    world.end_leases()
    world.wait_states([refund], "review")
    before = world.review_codes(refund)
    _wakes(world, worker, refund)
    world.wait_states([refund], "succeeded")
    each_once(world, [refund])
    return fired(before == ["operation_not_found"], f"{before}, then one refund and succeeded")


def _register_shifts() -> None:
    for shift in SHIFTS:

        def act(world: OperationsWorld, dice: Random, shift: str = shift) -> str:
            return _shift(world, shift)

        what = f"database clock {shift} while calls are on their way, and back"
        operation_fault(f"T1/operations_{shift}", what, soak="operations_clock", points=(AFTER_ANSWER,))(act)


def _shift(world: OperationsWorld, shift: str) -> str:
    """The clock jumps while answers are on their way, and later back; nothing is sent twice, and all goes on by itself."""
    worker = world.operator
    world.simulator.set(latency_ms=TOGETHER_MS)
    worker.freeze()
    worker.arm(AFTER_ANSWER, "stop")
    with world.asking() as asking:
        for _ in range(2):
            asking.fault("lost_answer", asking.refund())
            asking.fault("lost_answer", f"{asking.charge()}.confirm")
    worker.thaw()
    worker.wait_fired()
    worker.wait_stopped()
    world.simulator.set(latency_ms=0)
    before = world.value("SELECT clock_timestamp()")
    jump(world, asking.ids, shift)
    moved = world.value("SELECT clock_timestamp()") - before
    worker.thaw()
    world.wait_states(asking.ids, "succeeded", hasten=False)
    with world.asking() as meanwhile:
        meanwhile.charge()
        meanwhile.fault("lost_answer", meanwhile.refund())
    world.wait_states(meanwhile.ids, "succeeded", hasten=False)
    jump(world, [], "+0")
    with world.asking() as later:
        later.charge()
        later.fault("lost_answer", later.refund())
    world.wait_states(later.ids, "succeeded", hasten=False)
    each_once(world, [*asking.ids, *meanwhile.ids, *later.ids])
    return f"the database's clock moved by {moved} and back"


_register_shifts()


def _words(keys: list[str]) -> list[str]:
    return [key.partition(".")[2].partition(".")[0] or "refund" for key in keys]
