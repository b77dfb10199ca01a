"""X1, X11, X12, T2: workers killed and stopped at every place of an operation's way, two workers, settings that cannot work.

Rule: whoever dies or stands still leaves a lease; the next worker finds out what became of the call, and money moves once.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from random import Random
from typing import Any

from tests.chaos.fault import fired
from tests.chaos.operation_fault import each_once, fired_faults, operation_fault, posts
from tests.chaos.operations_world import CALL_SECONDS_MAX, OPERATION_LEASE_SECONDS, Asking, OperationsWorld
from tests.chaos.points import POINTS
from tests.checker.waiting import wait_for

BOTH = 2
CRASH_POINTS = ("before_claim", "after_claim", "before_send", "after_answer", "after_settle_commit")
LATE_MS = CALL_SECONDS_MAX * 1000 + 1500
MANY = 100
MISCONFIGURED = 3
MINUTES_20 = 1 / 3


def _plain(asking: Asking) -> None:
    for _ in range(BOTH):
        asking.charge()
        asking.refund()


def _spoiled(name: str, **rule: object) -> Callable[[Asking], None]:
    """Each operation's request that moves money goes wrong once."""

    def ask(asking: Asking) -> None:
        for _ in range(BOTH):
            asking.fault(name, f"{asking.charge()}.confirm", **rule)
            asking.fault(name, asking.refund(), **rule)

    return ask


def _declined(asking: Asking) -> None:
    for _ in range(BOTH):
        asking.charge(card="pm_card_chargeDeclined")
        asking.refund(charge="ch_of_nobody")


BEHAVIOURS: dict[str, tuple[str, Callable[[Asking], None]]] = {
    "success": ("succeeded", _plain),
    "lost_answer": ("succeeded", _spoiled("lost_answer")),
    "lost_request": ("succeeded", _spoiled("lost_request")),
    "stored_500": ("succeeded", _spoiled("server_error_with_effect")),
    "declined": ("failed", _declined),
    "slow_success": ("succeeded", _spoiled("slow_success", late_ms=LATE_MS)),
}
"""Name -> what comes of it, and how it is asked for."""


def _register_crashes() -> None:
    for place in CRASH_POINTS:
        for name in BEHAVIOURS:
            point = f"operator.{place}"

            def act(world: OperationsWorld, dice: Random, point: str = point, name: str = name) -> str:
                return _crash(world, dice, point=point, name=name)

            what = f"worker killed at {place}, Stripe: {name}"
            operation_fault(f"X1/{place}_{name}", what, points=(point,), every=3)(act)


def _crash(world: OperationsWorld, dice: Random, *, point: str, name: str) -> str:
    """Kill the only worker at a place while Stripe behaves in one way; the next one finishes."""
    outcome, ask = BEHAVIOURS[name]
    worker = world.operator
    worker.freeze()
    worker.arm(point, "kill9", at=dice.randrange(1, 3))
    with world.asking() as asking:
        ask(asking)
    worker.thaw()
    firing = worker.wait_fired()
    assert worker.wait_ended() == -signal.SIGKILL
    worker.disarm()
    world.end_leases()
    world.restart("operator")
    if outcome == "failed":
        # Refused now, while the dead worker's request may have acted: it counts when nothing is found a while later.
        wait_for(lambda: _answered(world, asking), limit_seconds=40, what="the refunds are refused")
        world.age(asking.ids, hours=MINUTES_20)
    world.wait_states(asking.ids, outcome)
    each_once(world, asking.ids, times=1 if outcome == "succeeded" else 0)
    wrong = fired_faults(world, *asking.ids)
    assert (len(wrong) >= 2 * BOTH) == (bool(asking.rules)), wrong
    return f"{firing}; then {len(posts(world, *asking.ids))} requests for {len(asking.ids)} operations, {outcome}"


def _answered(world: OperationsWorld, asking: Asking) -> bool:
    return all(world.evidences(one)[-1:] not in ([], [None]) for one in asking.ids)


_register_crashes()


def _register_other_kills() -> None:
    for place in ("before_recheck", "in_callback", "before_settle_commit"):
        point = f"operator.{place}"

        def act(world: OperationsWorld, dice: Random, point: str = point) -> str:
            return _crash(world, dice, point=point, name="lost_answer")

        operation_fault(f"X1/{place}_lost_answer", f"worker killed at {place}, lost answers", points=(point,))(act)


_register_other_kills()


def _register_pauses() -> None:
    for place in POINTS["operator"]:
        point = f"operator.{place}"

        def act(world: OperationsWorld, dice: Random, point: str = point) -> str:
            return _pause(world, dice, point=point)

        seconds = 2 * OPERATION_LEASE_SECONDS
        what = f"worker stands still for {seconds} s at {place}, another takes over"
        operation_fault(f"T2/operator_{place}", what, points=(point,), every=4)(act)


def _pause(world: OperationsWorld, dice: Random, *, point: str) -> str:
    """Stop a worker for twice its lease; what it does afterwards changes nothing."""
    worker = world.operator
    worker.freeze()
    worker.arm(point, "stop", at=dice.randrange(1, 3))
    with world.asking() as asking:
        for _ in range(BOTH):
            asking.charge()
            asking.refund()
    worker.thaw()
    firing = worker.wait_fired()
    worker.wait_stopped()
    world.join("operator")
    threading.Event().wait(2 * OPERATION_LEASE_SECONDS)
    world.wait_states(asking.ids, "succeeded", hasten=False)
    worker.thaw()
    fresh = _one_more(world)
    assert worker.alive
    each_once(world, [*asking.ids, fresh])
    late = [entry["event"] for name in ("late_answer_refused", "lease_lost") for entry in worker.log_entries(name)]
    return f"{firing}, for {2 * OPERATION_LEASE_SECONDS} s; {len(late)} late writes refused so far"


def _one_more(world: OperationsWorld) -> str:
    with world.asking() as asking:
        asking.charge()
    world.wait_states(asking.ids, "succeeded")
    return asking.ids[0]


_register_pauses()


@operation_fault("X11", f"two workers, {MANY} operations")
def two_workers(world: OperationsWorld, dice: Random) -> str:
    """Each operation is one worker's, and one call."""
    other = world.join("operator")
    charge = world.paid_charge("x11", amount=MANY * 100)
    with world.asking() as asking:
        for _ in range(MANY):
            asking.refund(charge=charge, amount=100)
    world.simulator.set(latency_ms=20)
    world.wait_states(asking.ids, "succeeded")
    each_once(world, asking.ids)
    assert len(posts(world, *asking.ids)) == MANY
    owners = world.rows(
        "SELECT owner, count(*) FROM onceflow.attempt WHERE operation_id = ANY(%s::uuid[]) GROUP BY 1", asking.ids
    )
    shares = sorted(count for _, count in owners)
    assert other.alive
    return fired(sum(shares) == MANY, f"{len(owners)} workers made {shares} calls")


def _register_settings() -> None:
    wrong: dict[str, tuple[dict[str, Any], str]] = {
        "lease": ({"operations__lease_seconds": CALL_SECONDS_MAX}, "operations.lease_seconds"),
        "window": ({"operations__safe_window_hours": 24}, "operations.safe_window_hours"),
        "key": ({"stripe__api_key": ""}, "api_key"),
        "live_key": ({"stripe__api_key": "sk_live_123456789"}, "sk_live_"),
    }
    for name, (settings, told) in wrong.items():

        def act(world: OperationsWorld, dice: Random, settings: dict[str, Any] = settings, told: str = told) -> str:
            part = world.part(f"operator-wrong-{dice.randrange(10**6)}", role="operator", **settings)
            part.start()
            assert part.wait_ended() == MISCONFIGURED, part.last_words()
            assert told in part.last_words(40), part.last_words(40)
            return f"exit code {MISCONFIGURED}, names {told}"

        operation_fault(f"X12/{name}", f"{', '.join(settings)}: start refused")(act)


_register_settings()
