"""O1 to O9: the relay dies, is stopped, is not alone, loses answers, meets what it cannot publish.

Rule: each outcome once and in order for a read_committed consumer, whatever the relay has to do twice.
"""

from __future__ import annotations

from random import Random

from tests.chaos.fault import fault, fired
from tests.chaos.kills import kill_at
from tests.chaos.points import POINTS
from tests.chaos.waits import TAKE_OVER_SECONDS, lease_token, wait_published
from tests.chaos.world import World
from tests.checker.topics import Isolation, read_topic
from tests.checker.waiting import wait_for
from tests.faults.kafka_proxy import Api, Loss


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
    world.join("relay")
    before = lease_token(world)
    relay = world.parts["relay"]
    relay.freeze()
    wait_for(
        lambda: lease_token(world) > before,
        limit_seconds=TAKE_OVER_SECONDS,
        what="the second relay has the lease",
    )
    wait_published(world)
    relay.thaw()
    wait_published(world)
    assert relay.alive
    return f"stopped at token {before}, went on at token {lease_token(world)}"


@fault(
    "O3/zombie_commit",
    "relay stopped before its commit goes on after another's",
    soak="relay",
    points=("relay.before_commit",),
)
def zombie_commit(world: World, dice: Random) -> str:
    """The worst moment: everything is sent, only the commit is missing."""
    world.join("relay")
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
    everything = _places(world, "read_uncommitted")
    aborted = everything - _places(world, "read_committed")
    return fired(aborted, f"{firing}; {len(everything)} records uncommitted, {len(aborted)} of them never committed")


def _places(world: World, isolation: Isolation) -> set[tuple[int | None, int | None]]:
    records = read_topic(world.bootstrap, world.topics.outcomes, isolation=isolation)
    return {(record.partition(), record.offset()) for record in records}
