"""K15: an operator replays everything from offset 0, by time and by key, twice, beside live traffic.

Rule: nothing that was done is done again: no effect, no outcome, no operation, no call of Stripe; the whole world is judged
afterwards as if nobody had replayed.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from tests.chaos.fault import fired
from tests.chaos.operating import REASON, run_command
from tests.chaos.operation_fault import operation_fault
from tests.chaos.operations_world import CARD, PRICE, OperationsWorld
from tests.chaos.waits import wait_processed
from tests.checker.waiting import wait_for

DEPOSITS = 6
LIVE_PER_SECOND = 30.0
REFUND_SECONDS = 60.0
NOTHING_RUNS = {"skipped", "ignored", "ahead", "quarantined", "untrusted", "refused"}


def _deposits(world: OperationsWorld) -> list[str]:
    """Payments whose handler gives the money back; their ids."""
    given: Any = {
        "amount": PRICE,
        "currency": "usd",
        "confirm": True,
        "payment_method": CARD,
        "metadata": {"give_back": "1"},
    }
    return [world.client().v1.payment_intents.create(given).id for _ in range(DEPOSITS)]


def _refunded(world: OperationsWorld, intents: list[str]) -> bool:
    world.hasten()
    query = "SELECT count(*) FROM onceflow.operation WHERE subject = ANY (%s) AND state = 'succeeded'"
    return bool(world.value(query, intents) == len(intents))


def _done(world: OperationsWorld, ids: list[str]) -> dict[str, int]:
    """What there is of events that were done before, and of operations and calls altogether."""
    of_them = "SELECT count(*) FROM {} WHERE {} = ANY (%s)"
    return {
        "effects": int(world.value(of_them.format("shop.effect", "event_id"), ids)),
        "outcomes": int(world.value(of_them.format("onceflow.outcome", "split_part(cause, '/', 3)"), ids)),
        "facts": int(world.value(of_them.format("onceflow.fact", "split_part(cause, '/', 3)"), ids)),
        "operations": int(world.value("SELECT count(*) FROM onceflow.operation")),
        "attempts": int(world.value("SELECT count(*) FROM onceflow.attempt")),
        "settlements": int(world.value("SELECT count(*) FROM shop.settlement")),
        "calls": len(world.journal()),
    }


def _replay(world: OperationsWorld, *way: str) -> dict[str, Any]:
    words = run_command(world, ["replay", "--topic", world.topics.events[0], "--json", *way, *REASON])
    answer: dict[str, Any] = json.loads(words.splitlines()[-1])
    assert answer["done"] == {}, f"{way} ran {answer['done']}"
    assert set(answer["fates"]) <= NOTHING_RUNS, answer["fates"]
    return answer


@operation_fault("K15", "everything is replayed from offset 0, by time and by key, twice, beside live traffic")
def replayed(world: OperationsWorld, dice: Random) -> str:
    """Among it payments whose handler asked Stripe for a refund."""
    intents = _deposits(world)
    wait_for(lambda: _refunded(world, intents), limit_seconds=REFUND_SECONDS, what="the deposits are given back")
    assert (reason := world.settle()) is None, reason
    ids = [row[0] for row in world.rows("SELECT event_id FROM onceflow.inbox")]
    before = _done(world, ids)
    an_hour_ago = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    partitions = world.value("SELECT count(*) FROM onceflow.progress WHERE topic = %s", world.topics.events[0])
    from_offset_0 = [["--partition", str(number), "--from-offset", "0"] for number in range(partitions)]
    skipped = []
    with world.loaded(LIVE_PER_SECOND) as load:
        for _ in range(2):
            begun = load.sender.answered
            skipped.append(sum(_replay(world, *way)["fates"].get("skipped", 0) for way in from_offset_0))
            for way in (["--from-time", an_hour_ago], ["--key", dice.choice(intents)]):
                _replay(world, *way)
            assert load.sender.answered > begun, "no live traffic meanwhile"
        load.wait_for_answers(20)
        wait_processed(world)
    assert _done(world, ids) == before
    done = world.value("SELECT count(*) FROM onceflow.inbox WHERE event_id = ANY (%s) AND state = 'processed'", ids)
    assert min(skipped) >= done, f"{skipped} skipped of {done} that were processed"
    return fired(
        min(skipped),
        f"skipped {skipped} as processed, {before['operations']} operations, {before['calls']} calls as before",
    )
