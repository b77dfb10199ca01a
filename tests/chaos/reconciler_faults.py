"""R1, R3, R5, R6: webhooks that never come, and what happens to those who bring their events.

Rule: every event of Stripe's list is done once, whoever brought it and whoever was killed; what was missed is a healed finding.
"""

from __future__ import annotations

import signal
import threading
import time
import uuid
from random import Random
from typing import Any

from tests.chaos.fault import Fault, add, fault, fired
from tests.chaos.operating import REASON, run_command
from tests.chaos.part import Part
from tests.chaos.reconciler_lists import make_customers, wait_finding
from tests.chaos.reconciler_world import ReconcilerWorld
from tests.chaos.sending import body_of, event, post
from tests.chaos.world import World
from tests.checker.waiting import wait_for

BROUGHT_SECONDS = 60.0
AGE_SECONDS = 30
LARGE_EVENTS = 50_000
LARGE_EVERY = 4
"""They take minutes each: one run of four has them."""
SPREAD_SECONDS = 500
"""Within the overlap of two looks: what appears in the list further back is found when its hour is read again."""
PORTION_EVENTS = 1_000
LATE_SECONDS = 6.0
DROPPED_SHARE = 0.2
LARGE_SECONDS = 900.0
OLD_FINDINGS_COUNT, OLD_LEFT = 30, 20
OLD_FINDINGS = """
WITH made AS (
    INSERT INTO onceflow.finding (kind, subject, state, first_seen_at, last_seen_at, healed_at, decided_at)
    SELECT 'range_lost', 'old ' || %s::text || ' ' || number || ' ' || days || state, state, at, at, at, at
    FROM generate_series(1, 10) AS number, (VALUES ('healed', 400), ('healed', 300), ('accepted', 400)) AS one (state, days),
         LATERAL (SELECT clock_timestamp() - make_interval(days => days) AS at) AS ago
    RETURNING id)
INSERT INTO onceflow.remedy (finding_id, action, who, result) SELECT id, 'look', 'x', 'y' FROM made
"""
DECIDED_FINDING = """
INSERT INTO onceflow.finding (kind, subject, facts) VALUES ('operation_behind', %s, json_build_object('operation_id', %s::text))
RETURNING id
"""


def _missed(count: int) -> list[dict[str, Any]]:
    """Events that are old enough to be judged."""
    created = int(time.time()) - AGE_SECONDS
    return [{**event(), "created": created + number * AGE_SECONDS // (2 * count)} for number in range(count)]


def _wait_done(world: World, events: list[dict[str, Any]]) -> None:
    ids = [one["id"] for one in events]
    query = "SELECT count(*) FROM onceflow.inbox WHERE event_id = ANY(%s)"
    wait_for(
        lambda: world.value(query, ids) == len(ids), limit_seconds=BROUGHT_SECONDS, what="all missed events are done"
    )


def _wait_healed(world: ReconcilerWorld, events: list[dict[str, Any]]) -> None:
    def healed() -> bool:
        found = world.findings()
        return all(found.get(one["id"]) == "healed" for one in events)

    wait_for(healed, limit_seconds=BROUGHT_SECONDS, what="their findings are healed")


@fault("R1", "webhooks that never come", soak="reconciler")
def never_sent(world: World, dice: Random) -> str:
    """Stripe lists 2,000 events of which nobody was told, among live ones; also such as it calls delivered."""
    assert isinstance(world, ReconcilerWorld)
    events = _missed(2_000)
    world.tell(events)
    _wait_done(world, events)
    _wait_healed(world, events)
    return f"{len(events)} events brought, done and healed"


@fault("R1/large", "of 50,000 webhooks 10,000 are dropped", soak="reconciler_large", quiet=True, every=LARGE_EVERY)
def ten_thousand_dropped(world: World, dice: Random) -> str:
    """Stripe drops a fifth of them on their way, while no reconciler runs; afterwards exactly these are found, brought and done."""
    assert isinstance(world, ReconcilerWorld)
    world.parts["reconciler"].stop()
    endpoint = world.simulator.add_webhook(
        world.webhook_url, secrets=[world.secret], drop=DROPPED_SHARE, retry_scale=0.01
    )
    created = int(time.time()) - AGE_SECONDS
    events = [{**event(), "created": created - number % SPREAD_SECONDS} for number in range(LARGE_EVENTS)]
    world.tell(events, surely=False, deliver=True)
    world.simulator.wait_delivered(timeout_seconds=LARGE_SECONDS)
    dropped = set(world.simulator.dropped(endpoint))
    fired(len(dropped) > LARGE_EVENTS * DROPPED_SHARE * 0.95, f"{len(dropped)} webhooks dropped")
    began = time.monotonic()
    world.restart("reconciler")
    query = "SELECT count(*) FROM onceflow.inbox WHERE state = 'processed'"
    wait_for(
        lambda: world.value(query) == LARGE_EVENTS,
        limit_seconds=LARGE_SECONDS,
        what="all events are done",
        step_seconds=0.5,
    )
    seconds = time.monotonic() - began
    wait_for(
        lambda: set(world.findings().values()) == {"healed"},
        limit_seconds=BROUGHT_SECONDS,
        what="all findings are healed",
    )
    found = set(world.findings())
    assert found == dropped, f"{len(found - dropped)} found that were not dropped, {len(dropped - found)} not found"
    twice = world.value(
        "SELECT count(*) FROM (SELECT event_id FROM shop.effect GROUP BY 1 HAVING count(*) > 1) AS doubled"
    )
    assert twice == 0
    return (
        f"{len(dropped)} of {LARGE_EVENTS} dropped, exactly these found, done within {seconds:.0f} s, 0 lost, 0 doubled"
    )


@fault(
    "R2/healthy",
    "50,000 events come late, twice and in any order, and nothing is wrong",
    soak="reconciler_healthy",
    quiet=True,
    every=LARGE_EVERY,
)
def nothing_is_wrong(world: World, dice: Random) -> str:
    """Webhooks late, swapped and doubled, a list that lags: within the grace that is no finding of any kind."""
    assert isinstance(world, ReconcilerWorld)
    endpoint = world.simulator.add_webhook(
        world.webhook_url,
        secrets=[world.secret],
        reorder=0.4,
        reorder_seconds=LATE_SECONDS,
        duplicate=0.05,
        retry_scale=0.01,
    )
    world.simulator.set(event_lag_seconds=LATE_SECONDS, event_lag_share=0.5)
    # Until now there was no endpoint, which is a finding.
    wait_finding(world, "endpoint_missing", "healed", limit_seconds=BROUGHT_SECONDS)
    for _ in range(LARGE_EVENTS // PORTION_EVENTS):
        made = [event() for _ in range(PORTION_EVENTS)]
        world.tell(made, surely=False, deliver=True)
        make_customers(world, 4)
        wait_for(
            lambda: world.simulator.state()["deliveries_waiting"] < PORTION_EVENTS,
            limit_seconds=BROUGHT_SECONDS,
            what="most webhooks are sent",
        )
    world.simulator.wait_delivered(timeout_seconds=LARGE_SECONDS)
    attempts = len(world.simulator.deliveries())
    last = int(time.time())
    read = (
        "SELECT coalesce(max(extract(epoch FROM done_until)), 0) FROM onceflow.reconcile_cursor WHERE source = 'events'"
    )
    wait_for(lambda: world.value(read) > last, limit_seconds=LARGE_SECONDS, what="the list is read to its end")
    found = world.rows("SELECT kind, subject, state FROM onceflow.finding WHERE kind <> 'endpoint_missing'")
    assert found == [], found[:5]
    assert world.simulator.dropped(endpoint) == []
    done = world.value("SELECT count(*) FROM onceflow.inbox")
    assert done == len(list(world.listed())) >= LARGE_EVENTS
    fired(attempts > LARGE_EVENTS * 1.02, f"{attempts} webhooks of {done} events")
    return f"{attempts} webhooks of {done} events, 0 findings"


@fault("R3", "the reconciler and the webhook bring the same event", soak="reconciler")
def both_bring_it(world: World, dice: Random) -> str:
    """The webhooks of listed events are sent while the reconciler looks."""
    assert isinstance(world, ReconcilerWorld)
    events = _missed(300)
    world.tell(events, surely=False)
    sender = threading.Thread(target=lambda: [post(world, body_of(one)) for one in events], name="late webhooks")
    sender.start()
    sender.join()
    _wait_done(world, events)
    brought = len([one for one in events if one["id"] in world.findings()])
    twice = world.value(
        "SELECT count(*) FROM (SELECT event_id FROM shop.effect GROUP BY 1 HAVING count(*) > 1) AS doubled"
    )
    assert twice == 0
    return f"{brought} of {len(events)} were brought by both, each done once"


@fault("R6", "Stripe limits the reads of the reconciler", soak="reconciler")
def limited(world: World, dice: Random) -> str:
    """Two reads a second: healing takes longer, and loses nothing."""
    assert isinstance(world, ReconcilerWorld)
    world.simulator.set(account_per_second=2.0, endpoint_per_second=2.0)
    events = _missed(400)
    world.tell(events)
    _wait_done(world, events)
    fired(world.simulator.reads("/v1/events"), "the list was read")
    return f"{len(events)} events brought at two reads a second"


def _register_kills() -> None:
    for place in ("before_publish", "after_publish", "after_remedied", "in_findings"):
        point = f"reconciler.{place}"

        def killed(world: World, dice: Random, *, point: str = point) -> str:
            assert isinstance(world, ReconcilerWorld)
            world.join("reconciler")
            worker = _who_works(world)
            worker.arm(point, "kill9")
            events = _missed(300)
            world.tell(events)
            firing = worker.wait_fired()
            assert worker.wait_ended() == -signal.SIGKILL
            worker.start()
            worker.wait_ready()
            _wait_done(world, events)
            _wait_healed(world, events)
            return f"{firing}; {len(events)} events done once and healed"

        add(Fault(f"R5/{point}", "a reconciler is killed while another waits", "reconciler", killed, points=(point,)))


@fault(
    "R5/old",
    "a reconciler is killed while it deletes what it wrote long ago",
    soak="reconciler",
    points=("reconciler.in_retention",),
)
def killed_while_it_deletes(world: World, dice: Random) -> str:
    """The next one deletes it, and nothing that is young, open or accepted."""
    assert isinstance(world, ReconcilerWorld)
    run = dice.randrange(10**12)
    world.rows(OLD_FINDINGS, run)
    world.join("reconciler")
    worker = _who_works(world)
    worker.arm("reconciler.in_retention", "kill9")
    world.rows("UPDATE onceflow.retention SET swept_at = NULL WHERE name = 'finding'")
    firing = worker.wait_fired()
    assert worker.wait_ended() == -signal.SIGKILL
    worker.start()
    worker.wait_ready()
    left = "SELECT count(*) FROM onceflow.finding WHERE subject LIKE %s"
    wait_for(
        lambda: world.value(left, f"old {run} %") == OLD_LEFT, limit_seconds=BROUGHT_SECONDS, what="what is old is gone"
    )
    orphans = "SELECT count(*) FROM onceflow.remedy WHERE finding_id NOT IN (SELECT id FROM onceflow.finding)"
    assert world.value(orphans) == 0
    return f"{firing}; {OLD_FINDINGS_COUNT - OLD_LEFT} of {OLD_FINDINGS_COUNT} deleted"


@fault(
    "R5/decided",
    "a person's command about findings is killed",
    soak="reconciler",
    points=("findings.before_heal_commit", "findings.before_accept_commit"),
)
def killed_decision(world: World, dice: Random) -> str:
    """Nothing is healed, accepted or told before the command is given again, and then once."""
    assert isinstance(world, ReconcilerWorld)
    subject = f"decided {dice.randrange(10**12)}"
    [(number,)] = world.rows(DECIDED_FINDING, subject, str(uuid.UUID(int=dice.getrandbits(128), version=4)))
    firings = []
    for word, place in (("heal", "before_heal_commit"), ("accept", "before_accept_commit")):
        command = ["findings", word, str(number), *REASON]
        part = world.part(f"findings-{word}-killed-{number}", role="reconciler", command=command)
        part.arm(f"findings.{place}", "kill9")
        part.start()
        firings.append(str(part.wait_fired()))
        assert part.wait_ended() == -signal.SIGKILL
        world.extras.append(part)
        audits = "SELECT count(*) FROM onceflow.audit WHERE subject LIKE %s"
        before = world.value(audits, f"finding {number} %")
        run_command(world, command, role="reconciler")
        assert world.value(audits, f"finding {number} %") == before + 1, "told once"
    assert world.findings("operation_behind").get(subject) == "accepted"
    return "; ".join(firings)


@fault(
    "R5/asleep",
    "a reconciler sleeps in front of its publishing, and wakes up as a former one",
    soak="reconciler",
    points=("reconciler.before_publish",),
)
def asleep(world: World, dice: Random) -> str:
    """Another one takes over and brings the events; what the sleeper then brings as well is done no second time."""
    assert isinstance(world, ReconcilerWorld)
    world.join("reconciler")
    worker = _who_works(world)
    worker.arm("reconciler.before_publish", "stop")
    events = _missed(300)
    world.tell(events)
    firing = worker.wait_fired()
    worker.wait_stopped()
    _wait_done(world, events)
    _wait_healed(world, events)
    worker.disarm()
    worker.thaw()
    wait_for(
        lambda: worker.log_entries("reconciler_waits"), limit_seconds=BROUGHT_SECONDS, what="it has lost its lease"
    )
    return f"{firing}; another brought {len(events)} events; awake, it brought none or doubles that were known"


def _who_works(world: ReconcilerWorld) -> Part:
    """The reconciler that holds the lease."""
    owner = str(world.value("SELECT owner FROM onceflow.lease WHERE name LIKE 'reconciler:%'"))
    parts = [world.parts["reconciler"], *world.extras]
    return next(part for part in parts if f":{part.pid}:" in owner)


_register_kills()
