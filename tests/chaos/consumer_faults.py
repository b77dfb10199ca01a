"""K1, K4, K6 to K11: the broker dies, members come and go, are late, are dead and return, lose their requests.

Rule: late work of a former member is fenced; whoever takes a partition over goes on where PostgreSQL says.
"""

from __future__ import annotations

import signal
import threading
import time
from functools import partial
from random import Random

from tests.chaos.fault import fault, fired
from tests.chaos.part import Part
from tests.chaos.topics import delete_group
from tests.chaos.waits import TAKE_OVER_SECONDS, epochs, owners, processed, wait_owners, wait_processed, wait_published
from tests.chaos.world import World
from tests.checker.waiting import wait_for
from tests.faults.kafka_proxy import Api, Loss

PAUSE_SECONDS = 4.0
ROUND_SECONDS = 3.0
ROUNDS = 4
LATE_SECONDS = 6
STATIC = "chaos-static-1"


@fault("K1/kill", "broker killed under load", soak="processor")
def broker_killed(world: World, dice: Random) -> str:
    """kill -9 at a random moment; a new broker on the same folder."""
    world.load.wait_for_answers(dice.randrange(1, 60))
    pid = world.kill_service("kafka")
    world.start_service("kafka")
    wait_published(world)
    return f"SIGKILL to the broker {pid}"


@fault("K1/pause", "broker stopped for some seconds", soak="processor")
def broker_paused(world: World, dice: Random) -> str:
    """Longer than sessions and heartbeats."""
    world.load.wait_for_answers(dice.randrange(1, 60))
    pid = world.service_signal("kafka", signal.SIGSTOP)
    threading.Event().wait(PAUSE_SECONDS)
    world.service_signal("kafka", signal.SIGCONT)
    wait_published(world)
    return f"SIGSTOP to the broker {pid} for {PAUSE_SECONDS} s"


@fault("K1/restart", "broker restarted cleanly", soak="processor")
def broker_restarted(world: World, dice: Random) -> str:
    """SIGTERM, then a new broker on the same folder."""
    pid = world.service_pid("kafka")
    world.services.kafka.stop()
    world.start_service("kafka")
    wait_published(world)
    return f"broker {pid} stopped and started as {world.service_pid('kafka')}"


@fault("K4/group", "the consumer group and its offsets are deleted", soak="processor")
def group_deleted(world: World, dice: Random) -> str:
    """Positions come from PostgreSQL; the group's offsets are for lag tools."""
    processor = world.parts["processor"]
    processor.stop()
    assert world.identity is not None
    group = f"onceflow.{world.identity.deployment}.processor"
    delete_group(world, group)
    before = processed(world)
    world.restart("processor")
    wait_processed(world)
    return f"group {group} deleted at {before} markers, went on"


def _is_over(until: float) -> bool:
    return time.monotonic() >= until


@fault("K6", "members join and leave every three seconds", soak="processor")
def members_wander(world: World, dice: Random) -> str:
    """Partitions wander between three processors, half of which are killed."""
    before, members = epochs(world), list[Part]()
    ends = []
    for number in range(ROUNDS):
        over = time.monotonic() + ROUND_SECONDS
        while len(members) < 2:
            members.append(world.join("processor"))
        wait_for(partial(_is_over, over), limit_seconds=60, what="the round is over")
        leaving = members.pop(dice.randrange(len(members)))
        if number % 2:
            ends.append(leaving.stop())
        else:
            leaving.kill()
    wait_processed(world)
    assert not any(ends), f"members ended with {ends}"
    return fired(epochs(world) >= before + ROUNDS, f"{ROUNDS} rounds, epochs {before} -> {epochs(world)}")


@fault("K7/batch", "a batch takes longer than a session", soak="processor", points=("processor.after_handlers",))
def slow_batch(world: World, dice: Random) -> str:
    """The consume thread goes on polling, so nobody takes the member for dead."""
    processor = world.parts["processor"]
    processor.arm("processor.after_handlers", f"sleep:{LATE_SECONDS}", at=dice.randrange(1, 6))
    firing = processor.wait_fired()
    wait_processed(world, limit_seconds=TAKE_OVER_SECONDS)
    assert processor.alive
    return str(firing)


@fault("K7/poll", "a member does not poll beyond max.poll.interval", soak="processor", points=("processor.after_poll",))
def late_poll(world: World, dice: Random) -> str:
    """Its partitions go to another member; what it does afterwards with the old ones is fenced or new."""
    world.parts["processor"].stop()
    limits = {
        "processor__group_protocol": "classic",
        "kafka__consumer__session__timeout__ms": 3000,
        "kafka__consumer__max__poll__interval__ms": 3500,
    }
    late, other = world.join("processor", **limits), world.join("processor", **limits)
    wait_owners(world, 2)
    late.arm("processor.after_poll", f"sleep:{LATE_SECONDS + 2}", at=dice.randrange(1, 6))
    firing = late.wait_fired()
    wait_owners(world, 1)
    wait_processed(world)
    assert late.alive
    assert other.alive
    wait_owners(world, 2)
    return f"{firing}; its partitions were taken over meanwhile"


@fault("K8/session", "a processor stopped for twice its session goes on", soak="processor")
def zombie_processor(world: World, dice: Random) -> str:
    """Somebody else has its partitions; it must take nothing for its own."""
    world.join("processor")
    wait_owners(world, 2)
    processor = world.parts["processor"]
    processor.freeze()
    wait_owners(world, 1)
    wait_processed(world)
    processor.thaw()
    wait_owners(world, 2)
    assert processor.alive
    return f"pid {processor.pid} stopped until its partitions were taken over"


def _register_zombies() -> None:
    for place in ("after_markers", "after_handlers", "before_commit"):
        point = f"processor.{place}"

        def act(world: World, dice: Random, point: str = point) -> str:
            world.join("processor")
            wait_owners(world, 2)
            processor = world.parts["processor"]
            processor.arm(point, "stop", at=dice.randrange(1, 6))
            firing = processor.wait_fired()
            processor.wait_stopped()
            wait_owners(world, 1, limit_seconds=60)
            wait_processed(world)
            processor.thaw()
            wait_owners(world, 2)
            assert processor.alive
            return str(firing)

        fault(f"K8/{place}", f"zombie stopped at {place}", soak="processor", points=(point,), every=3)(act)


_register_zombies()


@fault("K9", "every record goes to two members", soak="processor")
def two_groups(world: World, dice: Random) -> str:
    """A second processor in a group of its own: both are given all partitions, one marker each."""
    second = world.part("processor-of-another-group", role="processor")
    second.plan(group="chaos.other.group")
    world.extras.append(second)
    before = epochs(world)
    second.start()
    second.wait_ready()
    wait_for(
        lambda: epochs(world) > before + 12,
        limit_seconds=TAKE_OVER_SECONDS,
        what="both take partitions from each other",
    )
    wait_processed(world, limit_seconds=60)
    assert second.alive
    return f"epochs {before} -> {epochs(world)} while two groups had all partitions"


@fault("K10/down", "the processor loses all brokers", soak="processor")
def all_brokers_down(world: World, dice: Random) -> str:
    """Errors of the client are told and waited out, never a silent loop."""
    processor = world.parts["processor"]
    told = len(processor.log_entries("kafka_error"))
    world.brokers["processor"].cut()
    wait_for(
        lambda: len(processor.log_entries("kafka_error")) > told, limit_seconds=TAKE_OVER_SECONDS, what="it is told"
    )
    world.brokers["processor"].restore()
    wait_processed(world)
    codes = sorted({entry["code"] for entry in processor.log_entries("kafka_error")[told:]})
    return f"{world.brokers['processor'].sessions_cut} connections cut, told {codes}"


@fault("K10/fatal", "fatal error of the consumer", soak="processor", points=("processor.after_poll",))
def fatal_consumer(world: World, dice: Random) -> str:
    """The client is broken for good: a new one is built in the same process."""
    processor = world.parts["processor"]
    rebuilt = len(processor.log_entries("consumer_rebuilt"))
    processor.arm("processor.after_poll", "fatal:Consumer", at=dice.randrange(1, 10))
    firing = processor.wait_fired()
    wait_processed(world, limit_seconds=60)
    assert processor.alive
    return fired(len(processor.log_entries("consumer_rebuilt")) > rebuilt, f"{firing}, the consumer was built anew")


@fault("K10/static", "two members with one static id", soak="processor")
def static_fencing(world: World, dice: Random) -> str:
    """Kafka lets one of them in; the other says so and takes over when it may."""
    name = {"kafka__consumer__group__instance__id": STATIC}
    first, second = world.join("processor", **name), world.join("processor", **name)

    def told() -> int:
        return sum(
            len(part.log_entries(kind)) for part in (first, second) for kind in ("consumer_rebuilt", "kafka_error")
        )

    wait_for(told, limit_seconds=TAKE_OVER_SECONDS, what="one of them tells that it is fenced")
    first.kill()
    wait_processed(world, limit_seconds=60)
    assert second.alive
    return f"fenced and told {told()} times; the other goes on after the first was killed"


def _register_losses() -> None:
    for api in (Api.OFFSET_COMMIT, Api.CONSUMER_GROUP_HEARTBEAT, Api.FETCH):
        for loss in Loss:

            def act(world: World, dice: Random, api: Api = api, loss: Loss = loss) -> str:
                proxy = world.brokers["processor"]
                world.load.wait_for_answers(dice.randrange(1, 30))
                proxy.arm(api, loss)
                evidence = fired(proxy.fired.wait(TAKE_OVER_SECONDS), f"{api.name}: {loss.value}")
                wait_processed(world)
                return evidence

            what = f"{api.name}: {loss.name.lower()} lost"
            fault(f"K11/{api.name.lower()}_{loss.name.lower()}", what, soak="processor", every=2)(act)


_register_losses()


@fault("K11/coordinator", "the group's coordinator goes away in mid-session", soak="processor")
def coordinator_moves(world: World, dice: Random) -> str:
    """One broker is all coordinators: it is killed while a new member joins."""
    before = owners(world)
    second = world.part("processor-joining", role="processor")
    world.extras.append(second)
    second.start()
    world.load.wait_for_answers(dice.randrange(1, 20))
    pid = world.kill_service("kafka")
    world.start_service("kafka")
    second.wait_ready()
    wait_owners(world, 2)
    wait_processed(world)
    return f"broker {pid} killed while a member joined {len(before)} others"
