"""K16: markers are deleted for their age, the duty dies in the middle, and a record comes back from behind the horizon.

Rule: what is deleted was old by two clocks and needed by nobody; an event whose marker may be gone is refused, and never
takes effect a second time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

from tests.chaos.fault import fault, fired
from tests.chaos.kills import kill_at
from tests.chaos.planted_records import attested, record_of
from tests.chaos.points import POINTS
from tests.chaos.sending import body_of, event, note_sent, plant
from tests.chaos.waits import wait_published
from tests.chaos.world import World
from tests.checker.waiting import wait_for

OLD_DAYS = 100
OLD_MARKERS = 3_000
SWEEP_SECONDS = 40.0
LONG_HORIZON = {"processor__horizon_days": 300, "topics__retention_days": 300}

OLD_MARKER = """
INSERT INTO onceflow.inbox (account, mode, event_id, state, type, object_id, topic_id, partition, "offset", body_sha256,
                            received_at, processed_at, handler_set)
SELECT 'acct_embedded', 'test', event_id, 'processed', 'payment_intent.succeeded', '', 'former', 0, 0, '',
       clock_timestamp() - make_interval(days => %s), clock_timestamp() - make_interval(days => %s), ''
FROM unnest(%s::text[]) AS event_id
"""


def _plant_old(world: World, ids: list[str]) -> None:
    world.rows(OLD_MARKER, OLD_DAYS, OLD_DAYS, ids)
    world.rows("UPDATE onceflow.retention SET swept_at = NULL")


def _left(world: World, ids: list[str]) -> int:
    return int(world.value("SELECT count(*) FROM onceflow.inbox WHERE event_id = ANY (%s)", ids))


def _refused(world: World, ids: list[str]) -> int:
    assert world.value("SELECT count(*) FROM shop.effect WHERE event_id = ANY (%s)", ids) == 0, "it ran again"
    return int(world.value("SELECT count(*) FROM onceflow.quarantine WHERE event_id = ANY (%s)", ids))


def _register_kills() -> None:
    for place in POINTS["retention"]:
        point = f"retention.{place}"

        def act(world: World, dice: Random, point: str = point) -> str:
            ids = [f"evt_old{dice.randrange(10**12)}" for _ in range(OLD_MARKERS)]
            young = int(world.value("SELECT count(*) FROM onceflow.inbox"))
            _plant_old(world, ids)
            evidence = kill_at(world, "relay", point, at=1)
            wait_for(lambda: _left(world, ids) == 0, limit_seconds=SWEEP_SECONDS, what="the heir has deleted the rest")
            assert int(world.value("SELECT count(*) FROM onceflow.inbox")) >= young, "a young marker is gone"
            wait_published(world)
            return f"{evidence}; {OLD_MARKERS} old markers are gone, no young one"

        fault(f"K16/{place}", f"the maintenance duty is killed at {place}", soak="relay", points=(point,))(act)


_register_kills()


@fault("K16/replay", "a record comes again whose event's marker was deleted for its age", soak="planted")
def replay_behind_the_horizon(world: World, dice: Random) -> str:
    """Refused with its reason; also by a processor whose horizon was raised since, which would let it in by its age."""
    past = datetime.now(UTC) - timedelta(days=OLD_DAYS)
    bodies = [event(), event()]
    ids = [body["id"] for body in bodies]
    _plant_old(world, ids)
    world.parts["relay"].stop()
    world.restart("relay")
    wait_for(lambda: _left(world, ids) == 0, limit_seconds=SWEEP_SECONDS, what="their markers are deleted")
    for body in bodies:
        note_sent(world, body_of(body))
    plant(world, {"too_old"}, **record_of(attested(world, body_of(bodies[0]), received_at=past)))
    wait_for(lambda: _refused(world, ids) == 1, limit_seconds=SWEEP_SECONDS, what="the first record is refused")
    assert world.parts["processor"].stop() == 0
    raised = world.join("processor", **LONG_HORIZON)
    plant(world, {"too_old"}, **record_of(attested(world, body_of(bodies[1]), received_at=past)))
    wait_for(lambda: _refused(world, ids) == 2, limit_seconds=SWEEP_SECONDS, what="the second record is refused too")
    codes = [row[0] for row in world.rows("SELECT code FROM onceflow.quarantine WHERE event_id = ANY (%s)", ids)]
    ran = world.value("SELECT count(*) FROM shop.effect WHERE event_id = ANY (%s)", ids)
    assert (codes, ran) == (["too_old", "too_old"], 0), (codes, ran)
    assert raised.stop() == 0
    world.restart("processor")
    return fired(codes, f"two records of {OLD_DAYS} days ago, one beside a horizon of 300 days: {codes}, no effect")
