"""D6, D12, K2, K3, K4, O6 with a reconciler: what a restore or a lost ledger took away comes back, or is named.

Rule: whatever was accepted is done once in the end, by what the topics and Stripe's list still know; a person decides about what stands
still, and nothing else is done by hand.  What stays different for good is told by ``onceflow verify``, as often as the checker counts it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.chaos.fault import fault, fired
from tests.chaos.ledger_faults import closed_lanes, doubled_effects, ends, stopped, wait_taken
from tests.chaos.log_surgery import take_out_of_the_middle
from tests.chaos.operating import read_again, resume_lanes, run_command
from tests.chaos.reconciler_lists import wait_all_listed_done, wait_finding
from tests.chaos.reconciler_world import ReconcilerWorld
from tests.chaos.sending import body_of, post
from tests.chaos.snapshots import (
    copy_kafka,
    copy_postgres,
    kafka_folder,
    put_kafka_back,
    put_postgres_back,
    put_topic_back,
)
from tests.chaos.topics import delete_records, make_again
from tests.chaos.waits import processed, published
from tests.chaos.world import World
from tests.checker.expectation import ONCE, OUTCOME_TYPES
from tests.checker.waiting import wait_for

NOTICED_SECONDS = 90.0
RECORDS_GONE = frozenset({"I1:", "I3:", "I5:", "I9: the marker"})
"""As in ``ledger_faults``: markers stand whose records are gone for good.  That nothing was lost is asked of Stripe's list instead."""
BYTES_GONE = frozenset({"I1: answered 200 but not in the topic"})
"""Events came back from Stripe's list, which writes them in other bytes than their webhooks had."""
ORDER_GONE = BYTES_GONE | {"I4:"}
"""They came back in the list's order, and outcomes in that of the lost records.  Of two events of one fact that are met the other way round
the topic's one has it.  Gaps, doubles and foreign records in lanes are judged by the proof and the truth."""
ONCE_TYPES = sorted({OUTCOME_TYPES[one] for one in ONCE})
TAIL_RECORDS = 1_000
MANY_PER_SECOND = 300.0


def load_some(world: World, answers: int, *, per_second: float = 80.0) -> None:
    """Webhooks that are all answered and done."""
    with world.loaded(per_second) as load:
        load.wait_for_answers(answers)
    if world.parts["processor"].alive:
        assert world.settle() is None, world.proved()


def accept_only(world: World, answers: int) -> None:
    """Webhooks that are answered while nobody processes them."""
    world.parts["processor"].stop()
    with world.loaded() as load:
        load.wait_for_answers(answers)


def all_done(world: ReconcilerWorld) -> int:
    """Wait until every event that Stripe lists is done, each processed one with one row of the user; return how many."""
    ids = wait_all_listed_done(world, least=1)
    rows = world.value(
        "SELECT count(*) FROM onceflow.inbox WHERE state = 'processed' AND event_id = ANY(%s)"
        " AND NOT EXISTS (SELECT FROM shop.effect WHERE effect.event_id = inbox.event_id)",
        ids,
    )
    assert rows == 0, f"{rows} processed events have no row of the user"
    assert doubled_effects(world) == 0
    return len(ids)


def healed(world: ReconcilerWorld, *kinds: str) -> None:
    """Wait until nothing of these kinds is open."""
    for kind in kinds:
        wait_finding(world, kind, "healed", limit_seconds=NOTICED_SECONDS)

        def none_open(kind: str = kind) -> bool:
            return "open" not in world.findings(kind).values()

        wait_for(none_open, limit_seconds=NOTICED_SECONDS, what=f"no finding {kind} is open")


@fault(
    "K2/refilled",
    "the broker loses accepted events, and Stripe's list has them",
    soak="reconciler_tail",
    breaks=RECORDS_GONE,
    last=True,
    quiet=True,
)
def tail_refilled(world: World, dice: Random) -> str:
    """Kafka's folder is put back: events that were done stay done; those that nobody had processed come from the list."""
    assert isinstance(world, ReconcilerWorld)
    load_some(world, 120)
    copy = copy_kafka(world)
    load_some(world, 80)
    accept_only(world, 120)
    before = {number: end for number, (_, end) in ends(world, world.topics.events[0]).items()}
    put_kafka_back(world, copy)
    after = {number: end for number, (_, end) in ends(world, world.topics.events[0]).items()}
    gone = sum(before[number] - after[number] for number in before)
    fired(gone > 100, f"{gone} records lost")
    world.parts["relay"].stop()
    world.restart("relay")
    world.restart("processor")
    wait_taken(world)
    wait_finding(world, "partition_stopped", "open", limit_seconds=NOTICED_SECONDS)
    wait_finding(world, "lane_stopped", "open", limit_seconds=NOTICED_SECONDS)
    found = f"{gone} records lost, partitions {sorted(set(stopped(world).values()))}, lanes {sorted(set(closed_lanes(world).values()))}"
    _settle_stops(world, lambda: read_again(world, sorted(stopped(world))))
    resume_lanes(world, sorted(closed_lanes(world)), accept="tail_lost")
    done = all_done(world)
    healed(world, "partition_stopped", "lane_stopped", "missed_event")
    world.expected = frozenset({"marker_without_record", "topic_lost_records"})
    return f"{found}; {len(world.findings())} refilled from the list, {done} done once"


@fault(
    "K3/refilled",
    "the event topic is made again, and Stripe's list has what it held",
    soak="reconciler_topic",
    breaks=RECORDS_GONE,
    last=True,
    quiet=True,
)
def topic_refilled(world: World, dice: Random) -> str:
    """Events that nobody had processed went with the topic; a person sets the positions, and they come from the list."""
    assert isinstance(world, ReconcilerWorld)
    load_some(world, 120)
    accept_only(world, 120)
    had = [
        row[0]
        for row in world.rows("SELECT DISTINCT partition FROM onceflow.progress WHERE next_offset > 0 ORDER BY 1")
    ]
    make_again(world, world.topics.events[0], 6)
    wait_taken(world)
    world.restart("processor")
    wait_finding(world, "topic_replaced", "open", limit_seconds=NOTICED_SECONDS)
    read_again(world, had)
    done = all_done(world)
    healed(world, "topic_replaced", "missed_event")
    return f"topic_replaced told, {len(had)} positions set; {len(world.findings())} refilled from the list, {done} done once"


@fault(
    "K4/refilled",
    "retention takes records that nobody has read, and Stripe's list has them",
    soak="reconciler_retention",
    breaks=RECORDS_GONE,
    last=True,
    quiet=True,
)
def retention_refilled(world: World, dice: Random) -> str:
    """The partition stops with its range; with the loss accepted, the list is read again and all of it comes back."""
    assert isinstance(world, ReconcilerWorld)
    load_some(world, 100)
    accept_only(world, 150)
    topic = world.topics.events[0]
    reached = dict(world.rows("SELECT partition, next_offset FROM onceflow.progress"))
    chosen = dice.choice(
        [n for n, (_, end) in ends(world, topic).items() if end > reached.get(n, 0) + 5 and reached.get(n, 0)]
    )
    delete_records(world, topic, {chosen: ends(world, topic)[chosen][1] - 2})
    world.restart("processor")
    wait_finding(world, "partition_stopped", "open", limit_seconds=NOTICED_SECONDS)
    assert stopped(world) == {chosen: "log_start_passed"}, stopped(world)
    read_again(world, [chosen], accept_loss=True)
    done = all_done(world)
    healed(world, "partition_stopped", "missed_event")
    world.expected = frozenset({"records_deleted"})
    return f"partition {chosen}: log_start_passed; {len(world.findings())} refilled from the list, {done} done once"


@fault(
    "O6/resent", "the outcome topic loses its tail, beside a reconciler", soak="reconciler_lanes", last=True, quiet=True
)
def outcomes_resent(world: World, dice: Random) -> str:
    """Lanes stop with a code and are findings; a person lets them go on, and the relay sends what was lost with its old ids."""
    assert isinstance(world, ReconcilerWorld)
    load_some(world, 120)
    copy = copy_kafka(world)
    load_some(world, 150)
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
        wait_finding(world, "lane_stopped", "open", limit_seconds=NOTICED_SECONDS)
    resume_lanes(world, sorted(closed_lanes(world)), accept="tail_lost")
    load_some(world, 60)
    healed(world, "lane_stopped")
    return f"{len(lost)} lanes were findings, went on after lanes resume, healed"


@fault("O6/hole", "outcomes vanish from the middle of the topic", soak="reconciler_lanes", quiet=True)
def hole_refilled(world: World, dice: Random) -> str:
    """A batch is cut out of each lane's log: the proof counts every outcome of it, ``lanes refill`` sends them, and the proof is whole."""
    assert isinstance(world, ReconcilerWorld)
    load_some(world, 200)
    world.parts["relay"].stop()
    world.kill_service("kafka")
    cut = {lane: take_out_of_the_middle(kafka_folder(world) / f"{world.topics.outcomes}-{lane}") for lane in range(6)}
    world.start_service("kafka")
    holes = sorted(lane for lane, size in cut.items() if size)
    fired(holes, f"batches cut out of lanes {holes}")
    world.expected = frozenset({"outcome_not_published", "lane_gap"})
    assert world.settle() is None, world.proved()
    told = world.proved()
    assert " 0 unexplained" not in told, told
    for lane in holes:
        run_command(world, ["lanes", "refill", str(lane), "--reason", "cut out", "--execute"], role="relay")
    world.restart("relay")
    world.expected = frozenset()
    return f"lanes {holes}: {told}; refilled"


@fault("D6/proved", "PostgreSQL is put back, beside a reconciler", soak="reconciler_restored", last=True, quiet=True)
def database_put_back(world: World, dice: Random) -> str:
    """What the topic has comes back before a sequence is handed out; progress goes back with the rows; the proof is whole."""
    assert isinstance(world, ReconcilerWorld)
    load_some(world, 120)
    copy = copy_postgres(world)
    world.heal()
    load_some(world, 150)
    before, markers = published(world), processed(world)
    put_postgres_back(world, copy)
    restored = published(world)
    fired(restored < before, f"published_seq went from {before} to {restored}")
    world.heal()
    _wait_imported(world, before)
    assert all_done(world) >= markers
    return f"published {before} -> {restored} -> {published(world)}, {_imported(world)} imported"


@fault("D12/live", "PostgreSQL is put back under load", soak="reconciler_restored")
def put_back_live(world: World, dice: Random) -> str:
    """The sequences that the rows have forgotten stand in the topic: none is handed out a second time, by whoever runs meanwhile."""
    assert isinstance(world, ReconcilerWorld)
    world.load.wait_for_answers(100)
    copy = copy_postgres(world)
    world.heal()
    former = published(world)
    wait_for(lambda: published(world) >= former + 80, limit_seconds=NOTICED_SECONDS, what="more is published")
    before = published(world)
    put_postgres_back(world, copy)
    restored = published(world)
    fired(restored < before, f"published_seq went from {before} to {restored}")
    world.heal()
    _wait_imported(world, before)
    return f"published {before} -> {restored} -> {published(world)}, {_imported(world)} imported"


@fault(
    "D6/both",
    "PostgreSQL is put back, and the event topic loses its last records",
    soak="reconciler_both",
    breaks=ORDER_GONE,
    last=True,
    quiet=True,
)
def both_put_back(world: World, dice: Random) -> str:
    """Neither rows nor records know of them any more: outcomes and facts come back from their topic, events from Stripe's list.

    Of two events that tell one fact, webhooks of the one that had no outcome are sent again, and met first.
    """
    assert isinstance(world, ReconcilerWorld)
    load_some(world, 150)
    records, rows = copy_kafka(world), copy_postgres(world)
    world.heal()
    copied_at = world.value("SELECT clock_timestamp()")
    topic = world.topics.events[0]
    first = sum(end for _, end in ends(world, topic).values())
    load_some(world, TAIL_RECORDS, per_second=MANY_PER_SECOND)
    before, markers, seconds = published(world), processed(world), _told_again(world, copied_at)
    for name in ("bridge", "processor", "relay", "reconciler"):
        world.parts[name].stop()
    lost = sum(end for _, end in ends(world, topic).values()) - first
    put_topic_back(world, records, topic)
    put_postgres_back(world, rows)
    fired(
        lost >= TAIL_RECORDS and processed(world) < markers,
        f"{lost} records and {markers - processed(world)} markers gone",
    )
    restored = published(world)
    _meet_first(world, seconds)
    world.heal()
    _wait_imported(world, before)
    done = all_done(world)
    assert done >= markers, (done, markers)
    healed(world, "missed_event")
    taken = world.value("SELECT count(*) FROM onceflow.imported_fact")
    fired(taken > 0 and seconds, f"{taken} facts came back, {len(seconds)} events tell one of them again")
    twice = world.value(
        "SELECT count(*) FROM (SELECT FROM onceflow.outcome WHERE type = ANY(%s) GROUP BY type, key HAVING count(*) > 1) AS twice",
        ONCE_TYPES,
    )
    assert twice == 0, f"{twice} facts are told twice"
    return (
        f"{lost} records gone, {taken} facts came back, {len(seconds)} of their other events met first, published {before} -> {restored};"
        f" {_imported(world)} imported, {len(world.findings())} from the list, {done} done once"
    )


def _told_again(world: World, since: object) -> set[str]:
    """Events that told a fact which another had claimed, of the facts claimed since then."""
    rows = world.rows(
        "SELECT split_part(again.cause, '/', 3) FROM onceflow.fact_claim AS again JOIN onceflow.fact USING (namespace, key)"
        " WHERE fact.created_at > %s",
        since,
    )
    return {event_id for (event_id,) in rows}


def _meet_first(world: ReconcilerWorld, event_ids: set[str]) -> None:
    """Send their webhooks again, and have them done before the reconciler brings the others."""
    for name in ("bridge", "relay", "processor"):
        world.restart(name)
    for one in world.listed():
        if one["id"] in event_ids:
            status, answer, _ = post(world, body_of(one))
            assert status == 200, (status, answer)
    known = "SELECT count(*) FROM onceflow.inbox WHERE event_id = ANY(%s)"
    wait_for(
        lambda: world.value(known, [*event_ids]) == len(event_ids),
        limit_seconds=NOTICED_SECONDS,
        what="what was sent again is done",
    )


def _settle_stops(world: World, decide: Callable[[], None]) -> None:
    """Decide about partitions that stand still until none does: one that was not read meanwhile may stop later."""
    for _ in range(3):
        decide()
        if not stopped(world):
            return
    assert not stopped(world), stopped(world)


def _wait_imported(world: World, before: int) -> None:
    wait_taken(world)
    wait_for(
        lambda: published(world) >= before and not closed_lanes(world),
        limit_seconds=2 * NOTICED_SECONDS,
        what="what the topic has is imported, and all lanes are open",
    )


def _imported(world: World) -> int:
    return int(world.value("SELECT count(*) FROM onceflow.outcome WHERE imported_at IS NOT NULL"))
