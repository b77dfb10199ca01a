"""O1 to O9: the relay dies, is stopped, is not alone, loses answers, meets what it cannot publish.

Rule: each outcome once and in order for a read_committed consumer, whatever the relay has to do twice.
"""

from __future__ import annotations

import signal
from random import Random

from tests.chaos.fault import fault, fired
from tests.chaos.points import AT_START, POINTS
from tests.chaos.sending import post  # noqa: F401
from tests.chaos.world import LEASE_SECONDS, World
from tests.checker.topics import read_topic
from tests.checker.waiting import wait_for
from tests.faults.kafka_proxy import Api, Loss

TAKE_OVER_SECONDS = 40.0


def published(world: World) -> int:
    """How many outcomes are marked as published."""
    return int(world.value("SELECT sum(published_seq) FROM onceflow.lane"))


def wait_published(world: World, more: int = 20, *, limit_seconds: float = TAKE_OVER_SECONDS) -> None:
    """Wait until so many more outcomes are published."""
    goal = published(world) + more
    wait_for(lambda: published(world) >= goal, limit_seconds=limit_seconds, what=f"{more} more outcomes are published")


def kill_at(world: World, part: str, point: str, *, at: int) -> str:
    """Kill a part at a failpoint and start it again; a place that is passed only at the start is met by a restart."""
    process = world.parts[part]
    if point in AT_START:
        process.stop()
        process.arm(point, "kill9")
        process.start()
    else:
        process.arm(point, "kill9", at=at)
    firing = process.wait_fired()
    assert process.wait_ended() == -signal.SIGKILL
    world.restart(part)
    return str(firing)


def _register_kills() -> None:
    for place in POINTS["relay"]:
        point = f"relay.{place}"

        def act(world: World, dice: Random, point: str = point) -> str:
            evidence = kill_at(world, "relay", point, at=dice.randrange(1, 12))
            wait_published(world)
            return evidence

        fault(f"O2/{place}", f"relay killed at {place}", soak="relay", points=(point,))(act)


_register_kills()


@fault("O3/zombie", "relay stopped beyond its lease goes on later", soak="relay")
def zombie_relay(world: World, dice: Random) -> str:
    """A second relay takes over; the first one's late commit is fenced."""
    world.extra("relay")
    before = world.value("SELECT max(token) FROM onceflow.lease")
    relay = world.parts["relay"]
    relay.freeze()
    wait_for(
        lambda: world.value("SELECT max(token) FROM onceflow.lease") > before,
        limit_seconds=TAKE_OVER_SECONDS,
        what="the second relay has the lease",
    )
    wait_published(world)
    relay.thaw()
    wait_published(world)
    assert relay.alive
    return f"stopped at token {before}, went on at token {world.value('SELECT max(token) FROM onceflow.lease')}"


@fault(
    "O3/zombie_commit",
    "relay stopped before its commit goes on after another's",
    soak="relay",
    points=("relay.before_commit",),
)
def zombie_commit(world: World, dice: Random) -> str:
    """The worst moment: everything is sent, only the commit is missing."""
    world.extra("relay")
    relay = world.parts["relay"]
    if world.value("SELECT owner FROM onceflow.lease").split(":")[1] != str(relay.pid):
        relay = world.extras[-1]
    relay.arm("relay.before_commit", "stop", at=dice.randrange(1, 10))
    firing = relay.wait_fired()
    relay.wait_stopped()
    wait_published(world, 30)
    relay.thaw()
    wait_published(world, 30)
    assert relay.alive
    return str(firing)


def _register_losses() -> None:
    kinds = (Api.END_TXN, Api.TXN_OFFSET_COMMIT, Api.ADD_OFFSETS_TO_TXN, Api.PRODUCE)
    for api in kinds:
        for loss in Loss:

            def act(world: World, dice: Random, api: Api = api, loss: Loss = loss) -> str:
                proxy = world.brokers["relay"]
                wait_published(world, dice.randrange(1, 30))
                proxy.arm(api, loss)
                return_value = fired(proxy.fired.wait(TAKE_OVER_SECONDS), f"{api.name}: {loss.value}")
                wait_published(world)
                return return_value

            what = f"{api.name}: {loss.name.lower()} lost"
            fault(f"O4/{api.name.lower()}_{loss.name.lower()}", what, soak="relay")(act)


_register_losses()


@fault("O4/timeout", "the broker holds the relay's answers back beyond its limits", soak="relay")
def answers_held(world: World, dice: Random) -> str:
    """Commit times out: the producer is thrown away and everything is read again."""
    proxy = world.brokers["relay"]
    proxy.hold()
    relay = world.parts["relay"]
    ended = len(relay.log_entries("relay_term_ended"))
    wait_for(
        lambda: len(relay.log_entries("relay_term_ended")) > ended,
        limit_seconds=TAKE_OVER_SECONDS,
        what="the relay gives the term up",
    )
    proxy.restore()
    wait_published(world)
    code = relay.log_entries("relay_term_ended")[-1]["code"]
    return fired(sum(proxy.bytes_held.values()), f"{sum(proxy.bytes_held.values())} bytes held, term ended: {code}")


@fault("O8", "aborted records are there for read_uncommitted only", soak="relay")
def uncommitted_sees_more(world: World, dice: Random) -> str:
    """The contract says read_committed: a consumer without it sees copies that were never committed."""
    relay = world.parts["relay"]
    relay.arm("relay.before_commit", "kill9", at=2)
    firing = relay.wait_fired()
    relay.wait_ended()
    world.restart("relay")
    wait_published(world)
    topic = world.topics.outcomes
    everything = sum(1 for _ in read_topic(world.bootstrap, topic, isolation="read_uncommitted"))
    committed = sum(1 for _ in read_topic(world.bootstrap, topic, isolation="read_committed"))
    return fired(everything > committed, f"{firing}; {everything} records uncommitted, {committed} committed")


assert LEASE_SECONDS < TAKE_OVER_SECONDS
