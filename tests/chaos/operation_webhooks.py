"""X13 to X16: what webhooks say about our own calls, in whatever order; what Stripe takes back; what others double.

Rule: a webhook settles nothing, it is a reason to look; a settled operation changes only by what Stripe itself shows.
"""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

from tests.chaos.fault import fired
from tests.chaos.operation_fault import each_once, effects, operation_fault, posts
from tests.chaos.operation_time import AFTER_ANSWER, DAY_AND_MORE, kill_after_answer
from tests.chaos.operations_world import OperationsWorld
from tests.checker.waiting import wait_for


def wait_hint(world: OperationsWorld, identity: str, kind: str) -> None:
    """Wait until a webhook about an object of this kind was noted for an operation."""
    query = "SELECT 1 FROM onceflow.operation_hint WHERE operation_id = %s AND object = %s"
    wait_for(
        lambda: world.rows(query, UUID(identity), kind), limit_seconds=40, what=f"a hint about the {kind} is noted"
    )


def object_of(world: OperationsWorld, identity: str) -> str:
    """The id of the object that an operation made."""
    return str(world.value("SELECT external_id FROM onceflow.operation WHERE id = %s", UUID(identity)))


@operation_fault("X13/webhook_first", "the webhook comes before the answer is stored", points=(AFTER_ANSWER,))
def webhook_first(world: OperationsWorld, dice: Random) -> str:
    """The worker stands with the answer in its hand while the webhook is noted."""
    worker = world.operator
    worker.freeze()
    worker.arm(AFTER_ANSWER, "stop")
    with world.asking() as asking:
        asking.refund()
    [refund] = asking.ids
    worker.thaw()
    firing = worker.wait_fired()
    worker.wait_stopped()
    wait_hint(world, refund, "refund")
    state = world.states([refund])[refund]
    worker.thaw()
    world.wait_states([refund], "succeeded")
    each_once(world, [refund])
    return fired(state == "sending", f"{firing}; it was {state} when the webhook came, then succeeded once")


@operation_fault("X13/answer_first", "the answer is stored before the webhooks come, late and twice")
def answer_first(world: OperationsWorld, dice: Random) -> str:
    """What is known already is no news: no second call."""
    endpoint = world.simulator.add_webhook(world.webhook_url, secrets=[world.secret], delay_seconds=2.0, duplicate=1.0)
    try:
        with world.asking() as asking:
            asking.refund()
            asking.charge()
        world.wait_states(asking.ids, "succeeded")
        for one, kind in zip(asking.ids, ("refund", "payment_intent"), strict=True):
            wait_hint(world, one, kind)
        world.settle()
    finally:
        world.simulator.change_webhook(endpoint, enabled=False)
    each_once(world, asking.ids)
    sent = posts(world, *asking.ids)
    return fired(len(sent) == 3, f"{len(sent)} requests, settled once")


@operation_fault(
    "X13/only_the_webhook", "the answer is lost with its worker; the webhook is there first", points=(AFTER_ANSWER,)
)
def only_the_webhook(world: OperationsWorld, dice: Random) -> str:
    """A day later the object that the webhook named is looked at, and nothing is sent."""
    [refund] = kill_after_answer(world, charges=0, refunds=1)
    wait_hint(world, refund, "refund")
    before = posts(world, refund)
    world.end_leases()
    world.age([refund], hours=DAY_AND_MORE)
    world.restart("operator")
    world.wait_states([refund], "succeeded")
    each_once(world, [refund])
    return fired(posts(world, refund) == before, "settled by a look")


@operation_fault("X14/refund_returned", "a refund that has succeeded is returned by the bank")
def refund_returned(world: OperationsWorld, dice: Random) -> str:
    """It fails once, with an outcome of its own."""
    with world.asking() as asking:
        asking.refund()
    [refund] = asking.ids
    world.wait_states([refund], "succeeded")
    world.simulator.act("refund_fails", object_of(world, refund))
    world.wait_states([refund], "failed")
    world.settle()
    types = world.rows(
        "SELECT type FROM onceflow.outcome WHERE cause LIKE %s ORDER BY created_at", f"operation:{refund}/%"
    )
    assert types == [("give_part_back.succeeded",), ("give_part_back.failed",)], types
    return f"outcomes {[kind for (kind,) in types]}"


@operation_fault("X14/disputed", "a charge that has succeeded is disputed")
def disputed(world: OperationsWorld, dice: Random) -> str:
    """The charge was made: a dispute is another object's story."""
    with world.asking() as asking:
        asking.charge()
    [charge] = asking.ids
    world.wait_states([charge], "succeeded")
    intent = world.client().v1.payment_intents.retrieve(object_of(world, charge))
    world.simulator.act("dispute", str(intent.latest_charge))
    world.settle()
    return fired(world.states([charge])[charge] == "succeeded", "still succeeded, told once")


@operation_fault("X15/doubled", "somebody repeats a partial refund with its metadata")
def doubled(world: OperationsWorld, dice: Random) -> str:
    """The webhook shows a second object: for a person."""
    with world.asking() as asking:
        paid = world.paid_charge("x15")
        asking.refund(charge=paid)
    [refund] = asking.ids
    world.wait_states([refund], "succeeded")
    world.asleep.add(refund)
    world.client().v1.refunds.create({"charge": paid, "amount": 500, "metadata": {"onceflow_operation": refund}})
    world.wait_states([refund], "review")
    assert effects(world, refund) == 2
    return fired(world.review_codes(refund) == ["several_objects"], "2 refunds, in review: several_objects")


def _register_mismatches() -> None:
    answers: dict[str, dict[str, Any]] = {
        "amount": {"amount": 1},
        "currency": {"currency": "eur"},
        "object": {"object": "payout"},
    }
    for name, wrong in answers.items():

        def act(world: OperationsWorld, dice: Random, wrong: dict[str, Any] = wrong) -> str:
            with world.asking() as asking:
                asking.fault("altered", f"{asking.charge()}.confirm", set=wrong)
                if "currency" not in wrong:
                    asking.fault("altered", asking.refund(), set=wrong)
            world.wait_states(asking.ids, "review")
            each_once(world, asking.ids)
            codes = [code for one in asking.ids for code in world.review_codes(one)]
            return fired(set(codes) == {"answer_strange"}, f"{codes}")

        operation_fault(f"X15/{name}", f"Stripe answers with another {name} than was asked for")(act)


_register_mismatches()


@operation_fault("X16", "searches lag by an hour, then are refused", points=(AFTER_ANSWER,))
def searches_lag(world: OperationsWorld, dice: Random) -> str:
    """Nothing is searched: what is unknown a day later is found in lists and by ids."""
    world.simulator.set(search_lag_seconds=3600, search_refused=bool(dice.randrange(2)))
    ids = kill_after_answer(world, charges=2, refunds=2)
    assert len(posts(world, *ids)) == len(ids), "all have been sent"
    world.end_leases()
    world.age(ids, hours=DAY_AND_MORE)
    world.restart("operator")
    world.wait_states(ids, "succeeded")
    world.simulator.set(search_lag_seconds=0, search_refused=False)
    each_once(world, ids)
    paths = {str(one["path"]) for one in world.journal() if one["method"] == "GET"}
    return fired(not any("search" in path for path in paths), f"{len(paths)} paths read, no search among them")
