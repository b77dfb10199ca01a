"""K2, K3, K4, D6, D12, O6, O7: a ledger loses what was acknowledged, or is replaced by another one.

Rule: whoever meets it stops with a code, the others go on, and nothing is doubled; a person decides what follows.
Each of these faults ends its world: what is lost stays lost, so the checker leaves out what the fault itself breaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from onceflow.embedded.broker_properties import ExtraListener
from onceflow.embedded.data_folder import DataFolder
from onceflow.embedded.kafka_broker import KafkaBroker
from tests.chaos.fault import fault, fired
from tests.chaos.operating import read_again, resume_lanes
from tests.chaos.sending import body_of, event, post
from tests.chaos.snapshots import copy_kafka, copy_postgres, put_kafka_back, put_postgres_back, put_topic_back
from tests.chaos.topics import add_partitions, delete_records, make_again
from tests.chaos.waits import TAKE_OVER_SECONDS, processed, published, wait_processed
from tests.chaos.world import World
from tests.checker.topics import bounds, consumer, read_topic
from tests.checker.waiting import wait_for

STANDS_STILL = frozenset({"I1:", "I3:", "I4:", "I5:", "I6:", "I8:", "I9: the marker"})
"""Where nobody can decide yet: accepted but not there, markers without records, standing still.  What stays judged: no
second effect (I2), nothing unverified and no secret (I9)."""

EVENTS_GONE = frozenset({"I1:", "I3:", "I5:", "I9: the marker"})
"""Records are gone from the event topic for good, their markers stand, and other records take their offsets.  The outcome
topic is judged in full (I4), and that everything goes on (I8)."""
NOTICED_SECONDS = 60.0
NEW_PARTITION_EVENTS = 60


def stopped(world: World) -> dict[int, str]:
    """Partitions that stand still, with their codes."""
    return dict(world.rows("SELECT partition, stopped FROM onceflow.progress WHERE stopped IS NOT NULL"))


def closed_lanes(world: World) -> dict[int, str]:
    """Lanes that are not ok, with their states."""
    return dict(world.rows("SELECT lane, state FROM onceflow.lane WHERE state <> 'ok'"))


def ends(world: World, topic: str) -> dict[int, tuple[int, int]]:
    """Log start and end of each partition."""
    reader = consumer(world.bootstrap, "read_uncommitted")

    def found() -> dict[int, tuple[int, int]] | None:
        # A broker that has just started may not lead every partition yet.
        try:
            return bounds(reader, topic)
        except KafkaException:
            return None

    try:
        return wait_for(found, limit_seconds=NOTICED_SECONDS, what=f"{topic} has its bounds")
    finally:
        reader.close()


def doubled_effects(world: World) -> int:
    """Events whose user's row stands more than once."""
    return int(
        world.value("SELECT count(*) FROM (SELECT event_id FROM shop.effect GROUP BY 1 HAVING count(*) > 1) AS doubled")
    )


def _load_some(world: World, answers: int) -> None:
    with world.loaded() as load:
        load.wait_for_answers(answers)
    assert world.settle() is None


def wait_taken(world: World, limit_seconds: float = NOTICED_SECONDS) -> None:
    """Wait until a webhook is answered with 200."""
    wait_for(lambda: post(world, body_of(event()))[0] == 200, limit_seconds=limit_seconds, what="webhooks are taken on")


@fault("K2", "the broker loses its acknowledged tail", soak="lost_tail", breaks=EVENTS_GONE, last=True, quiet=True)
def lost_tail(world: World, dice: Random) -> str:
    """Kafka's folder is put back: positions beyond the log's end are noticed, and lanes whose tail is gone (O6)."""
    _load_some(world, 150)
    copy = copy_kafka(world)
    _load_some(world, 150)
    before = {number: end for number, (_, end) in ends(world, world.topics.events[0]).items()}
    markers = processed(world)
    put_kafka_back(world, copy)
    after = {number: end for number, (_, end) in ends(world, world.topics.events[0]).items()}
    lost = {number: before[number] - after[number] for number in before if after[number] < before[number]}
    fired(lost, f"records lost per partition: {lost}")
    wait_for(lambda: set(stopped(world)) >= set(lost), limit_seconds=NOTICED_SECONDS, what="every loss is noticed")
    # With all partitions standing still nothing is published, and a relay looks when it publishes or takes over.
    world.parts["relay"].stop()
    world.restart("relay")
    lanes = wait_for(lambda: closed_lanes(world), limit_seconds=NOTICED_SECONDS, what="the lanes notice it")
    codes = set(stopped(world).values())
    assert codes <= {"tail_lost", "fingerprint_differs", "offset_out_of_range"}, codes
    wait_taken(world)
    assert processed(world) >= markers
    found = f"{sum(lost.values())} records lost; partitions {stopped(world)}, lanes {lanes}"
    read_again(world, sorted(stopped(world)))
    resume_lanes(world, sorted(closed_lanes(world)), accept="tail_lost")
    _load_some(world, 60)
    assert doubled_effects(world) == 0
    return f"{found}; went on after progress set and lanes resume"


@fault("O6", "the outcome topic alone loses its tail", soak="lost_outcomes", last=True, quiet=True)
def lost_outcomes(world: World, dice: Random) -> str:
    """A torn transaction: the cursor is ahead of the log.  The audit of cursor, topic and rows finds it."""
    _load_some(world, 120)
    copy = copy_kafka(world)
    _load_some(world, 150)
    topic = world.topics.outcomes
    before = ends(world, topic)
    put_topic_back(world, copy, topic)
    after = ends(world, topic)
    lost = {number for number in before if after[number][1] < before[number][1]}
    fired(lost, f"lanes that lost records: {sorted(lost)}")
    with world.loaded():
        wait_for(
            lambda: set(closed_lanes(world)) >= lost, limit_seconds=NOTICED_SECONDS, what="every lost tail is noticed"
        )
    assert set(closed_lanes(world).values()) == {"stopped:tail_lost"}, closed_lanes(world)
    assert stopped(world) == {}, "the event topic was not touched"
    found = f"{sum(before[number][1] - after[number][1] for number in lost)} offsets lost: lanes {closed_lanes(world)}"
    resume_lanes(world, sorted(closed_lanes(world)), accept="tail_lost")
    _load_some(world, 60)
    return f"{found}; went on after lanes resume"


@fault(
    "K3/topic",
    "the event topic is deleted and made again",
    soak="new_topic",
    breaks=STANDS_STILL,
    last=True,
    quiet=True,
)
def topic_made_again(world: World, dice: Random) -> str:
    """The same name, another id: every partition that had a position stops as topic_changed, nothing is skipped."""
    _load_some(world, 150)
    had = {row[0] for row in world.rows("SELECT partition FROM onceflow.progress WHERE next_offset > 0")}
    world.parts["processor"].stop()
    make_again(world, world.topics.events[0], 6)
    wait_taken(world)
    world.restart("processor")
    logged = wait_for(
        lambda: _told_stops(world) if len(_told_stops(world)) >= len(had) else None,
        limit_seconds=NOTICED_SECONDS,
        what="every partition tells it",
    )
    assert set(logged.values()) == {"topic_changed"}, logged
    assert doubled_effects(world) == 0
    return f"{len(had)} partitions had positions, told: {logged}"


def _told_stops(world: World) -> dict[str, str]:
    return {entry["partition"]: entry["code"] for entry in world.parts["processor"].log_entries("partition_stopped")}


@fault("K3/cluster", "another cluster answers under the broker's name", soak="grown")
def another_cluster(world: World, dice: Random) -> str:
    """The processor is led to it and stops with a code; back at the right one nothing was skipped.

    Where it was reading, Kafka's refusal of the offset may come before the topic's other id is seen: that partition then
    waits for a person.
    """
    processor = world.parts["processor"]
    told = len(processor.log_entries("partition_stopped"))
    with other_broker(world) as address:
        world.strangers["processor"] = address
        world.brokers["processor"].sever()
        wait_for(
            lambda: len(processor.log_entries("partition_stopped")) > told,
            limit_seconds=NOTICED_SECONDS,
            what="the processor tells that this is another cluster",
        )
        codes = {entry["code"] for entry in processor.log_entries("partition_stopped")[told:]}
        assert codes <= {"topic_changed", "offset_out_of_range"}, codes
        world.strangers.clear()
        world.brokers["processor"].sever()
    waiting = sorted(stopped(world))
    read_again(world, waiting)
    wait_processed(world, limit_seconds=NOTICED_SECONDS)
    return f"another cluster at {address}: told {sorted(codes)}, {len(waiting)} partitions set again, went on at the right one"


@contextmanager
def other_broker(world: World) -> Iterator[str]:
    """Run a second cluster with topics of the same names; yield where it listens for the processor."""
    folder = DataFolder(world.folder / "other-cluster")
    folder.claim()
    listener = ExtraListener("PROCESSOR", world.brokers["processor"].port)
    broker = KafkaBroker(folder, cache_dir=world.cache_folder, progress=lambda _line: None, listeners=[listener])
    try:
        broker.start()
        broker.wait_ready()
        client = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        names = [world.topics.events[0], world.topics.outcomes]
        for answer in client.create_topics([NewTopic(name, 6, 1) for name in names]).values():
            answer.result(NOTICED_SECONDS)
        yield broker.address("PROCESSOR")
    finally:
        broker.stop()
        folder.release()


@fault(
    "O7/topic",
    "the outcome topic is deleted and made again",
    soak="new_lanes",
    last=True,
    quiet=True,
)
def outcome_topic_made_again(world: World, dice: Random) -> str:
    """Its lanes belong to another topic id: they stop with a code, and hand nothing out for the new one by mistake."""
    _load_some(world, 150)
    heads = published(world)
    make_again(world, world.topics.outcomes, 6)
    with world.loaded():
        lanes = wait_for(
            lambda: closed_lanes(world) if len(closed_lanes(world)) == 6 else None,
            limit_seconds=NOTICED_SECONDS,
            what="all lanes notice it",
        )
    committed = sum(1 for _ in read_topic(world.bootstrap, world.topics.outcomes, isolation="read_committed"))
    assert committed == 0, f"{committed} outcomes were published into it"
    wait_taken(world)
    resume_lanes(world, sorted(lanes), accept="topic_changed")
    _load_some(world, 60)
    return (
        f"{heads} outcomes were published; lanes {sorted(set(lanes.values()))}, all published again after lanes resume"
    )


@fault(
    "K4/retention",
    "retention passes records before they are read",
    soak="retention",
    breaks=EVENTS_GONE,
    last=True,
    quiet=True,
)
def retention(world: World, dice: Random) -> str:
    """The processor was away too long: the partition stops with the range, the others go on."""
    _load_some(world, 100)
    world.parts["processor"].stop()
    with world.loaded() as load:
        load.wait_for_answers(150)
    topic = world.topics.events[0]
    reached = dict(world.rows("SELECT partition, next_offset FROM onceflow.progress"))
    chosen = dice.choice(
        [number for number, (_, end) in ends(world, topic).items() if end > reached.get(number, 0) + 5]
    )
    gone = ends(world, topic)[chosen][1] - 2
    delete_records(world, topic, {chosen: gone})
    world.restart("processor")
    wait_for(lambda: stopped(world), limit_seconds=NOTICED_SECONDS, what="the partition stops")
    wait_processed(world, 10)
    assert stopped(world) == {chosen: "log_start_passed"}, stopped(world)
    detail = world.parts["processor"].log_entries("partition_stopped")[-1]["detail"]
    read_again(world, [chosen], accept_loss=True)
    _load_some(world, 60)
    return fired(
        str(reached[chosen]) in detail, f"partition {chosen}: log_start_passed, {detail}; on after progress set"
    )


@fault("K5", "partitions are added while everything runs", soak="grown")
def partitions_added(world: World, dice: Random) -> str:
    """The new ones are read from their beginning, whoever discovers them when."""
    topic = world.topics.events[0]
    world.load.wait_for_answers(dice.randrange(10, 60))
    add_partitions(world, topic, 8)
    # The first bridge learns of them within minutes; one that is started now knows them at once.
    url = world.join("bridge").state["url"] + "/webhooks/stripe"
    for _ in range(NEW_PARTITION_EVENTS):
        assert post(world, body_of(event()), url=url)[0] == 200
    assert all(ends(world, topic)[number][1] > 0 for number in (6, 7)), "the second bridge writes to the new partitions"
    wait_for(
        lambda: (
            world.value("SELECT count(*) FROM onceflow.progress WHERE partition IN (6, 7) AND next_offset > 0") == 2
        ),
        limit_seconds=90,
        what="the processor reads the new partitions",
    )
    return f"6 -> 8 partitions, new ones end at {[ends(world, topic)[number][1] for number in (6, 7)]}"


@fault("D6", "PostgreSQL is put back to an older state", soak="restored", last=True, quiet=True)
def database_restored(world: World, dice: Random) -> str:
    """Reading begins at the restored position; what the topic has comes back before a lane hands anything out (D12)."""
    _load_some(world, 120)
    copy = copy_postgres(world)
    world.heal()
    _load_some(world, 150)
    before = published(world)
    put_postgres_back(world, copy)
    restored = published(world)
    fired(restored < before, f"published_seq went from {before} to {restored}")
    world.heal()
    wait_taken(world)
    wait_for(
        lambda: published(world) >= before and not closed_lanes(world),
        limit_seconds=NOTICED_SECONDS + TAKE_OVER_SECONDS,
        what="what the topic has is imported, and all lanes are open",
    )
    imported = world.value("SELECT count(*) FROM onceflow.outcome WHERE imported_at IS NOT NULL")
    assert doubled_effects(world) == 0
    return f"published {before} -> {restored} -> {published(world)}, {imported} imported"
