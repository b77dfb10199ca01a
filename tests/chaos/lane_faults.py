"""O1, O5, O7, O9: commits out of order, transactions that last too long, what cannot be published, a long backlog."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from random import Random

import psycopg

from tests.chaos.fault import fault, fired
from tests.chaos.sending import body_of, event, post
from tests.chaos.topics import set_topic
from tests.chaos.waits import TAKE_OVER_SECONDS, owners, wait_owners, wait_published
from tests.chaos.world import World
from tests.checker.judge_outcomes import murmur2
from tests.checker.waiting import wait_for

BROKER_ENDS_SECONDS = 22.5
"""Above the relay's transaction.timeout.ms of 20 s and the broker's look once per second."""
TINY_BYTES = 250
"""An outcome with its headers is larger."""
OPEN_AGAIN_SECONDS = 60.0
BACKLOG_ROWS = 60_000
BACKLOG_SECONDS = 60.0
MEMORY_BYTES_MAX = 160 * 1024 * 1024


@fault("O1", "later sequences wait for earlier commits", soak="lanes", points=("processor.before_commit",))
def commits_out_of_order(world: World, dice: Random) -> str:
    """Two processors, one of which is slow right before its commit: the relay must not run past a gap."""
    second = world.join("processor")
    wait_owners(world, 2)
    slow = [world.parts["processor"], second]
    for part in slow:
        part.arm("processor.before_commit", f"sleep:{dice.uniform(0.1, 0.4):.2f}", at=dice.randrange(1, 5), times=12)
    firings = [part.wait_fired(6) for part in slow]
    wait_published(world)
    return f"12 commits of 2 processors delayed, among them {firings[0]}; {len(owners(world))} owners"


@fault("O5", "a transaction lasts longer than the broker allows", soak="lanes", points=("relay.before_commit",))
def transaction_too_long(world: World, dice: Random) -> str:
    """The broker aborts it; the relay begins anew and sends everything once more."""
    relay = world.parts["relay"]
    ended = len(relay.log_entries("relay_term_ended"))
    relay.arm("relay.before_commit", f"sleep:{BROKER_ENDS_SECONDS}", at=dice.randrange(1, 6))
    firing = relay.wait_fired()
    wait_for(lambda: len(relay.log_entries("relay_term_ended")) > ended, limit_seconds=60, what="the relay's term ends")
    wait_published(world)
    return f"{firing}; term ended: {relay.log_entries('relay_term_ended')[-1]['code']}"


@fault("O7", "the topic does not take the outcomes of a lane", soak="lanes")
def unpublishable(world: World, dice: Random) -> str:
    """The lane says so, nothing is skipped, and it opens by itself when the limit is raised."""
    topic = world.topics.outcomes
    former = set_topic(world, topic, "max.message.bytes", str(TINY_BYTES))
    try:
        state = wait_for(
            lambda: world.rows("SELECT lane, state, detail FROM onceflow.lane WHERE state LIKE 'stopped:%%'"),
            limit_seconds=TAKE_OVER_SECONDS,
            what="a lane is stopped",
        )[0]
    finally:
        set_topic(world, topic, "max.message.bytes", former)
    wait_for(
        lambda: not world.rows("SELECT 1 FROM onceflow.lane WHERE state <> 'ok'"),
        limit_seconds=OPEN_AGAIN_SECONDS,
        what="all lanes are open again",
    )
    return f"max.message.bytes={TINY_BYTES}: lane {state[0]} {state[1]} ({state[2][:60]}), open again by itself"


@fault("O7/value", "an outcome larger than the topic takes", soak="lanes")
def outcome_too_large(world: World, dice: Random) -> str:
    """Its size is checked in the handler: that event is quarantined, the lane never stops."""
    status, _, _ = post(
        world, body_of(event(metadata={"handler": "a large outcome"})), codes=frozenset({"outcome_refused"})
    )
    assert status == 200, status
    code = wait_for(
        lambda: world.rows("SELECT code FROM onceflow.quarantine WHERE code = 'outcome_refused'"),
        limit_seconds=TAKE_OVER_SECONDS,
        what="the event is quarantined",
    )[0][0]
    wait_published(world)
    return f"quarantined with {code}, lanes went on"


@fault("O9", f"a backlog of {BACKLOG_ROWS} outcomes", soak="backlog", last=True, breaks=frozenset({"I3:"}), quiet=True)
def backlog(world: World, dice: Random) -> str:
    """The relay was away for long: bounded memory, an index scan, every row once."""
    relay = world.parts["relay"]
    assert relay.stop() == 0
    _write_backlog(world)
    plan = json.dumps(
        world.value("EXPLAIN (FORMAT JSON) SELECT * FROM onceflow.outcome WHERE lane = 1 AND seq > 10 AND seq <= 5010")
    )
    world.restart("relay")
    most = 0

    def done() -> bool:
        nonlocal most
        most = max(most, relay.resident_bytes())
        return not world.rows("SELECT 1 FROM onceflow.lane WHERE published_seq < head_seq")

    wait_for(done, limit_seconds=BACKLOG_SECONDS, what="the backlog is published")
    assert most < MEMORY_BYTES_MAX, f"the relay took {most} bytes"
    assert "Index" in plan or "Bitmap" in plan, plan
    return fired(most, f"{BACKLOG_ROWS} rows published, the relay took at most {most // 1024 // 1024} MiB")


def _write_backlog(world: World) -> None:
    """Write outcomes as the processor would, into the lanes of their keys."""
    heads = dict(world.rows("SELECT lane, head_seq FROM onceflow.lane"))
    columns = "lane, seq, outcome_id, ce_id, type, key, value, cause, created_at"
    with psycopg.connect(world.database_url) as connection:
        with connection.cursor().copy(f"COPY onceflow.outcome ({columns}) FROM STDIN") as rows:
            for number in range(BACKLOG_ROWS):
                key = f"backlog-{number}"
                lane = (murmur2(key.encode()) & 0x7FFFFFFF) % len(heads)
                heads[lane] += 1
                name = uuid.uuid5(uuid.NAMESPACE_URL, key)
                rows.write_row((lane, heads[lane], name, name, "backlog", key, b"{}", "app:backlog", datetime.now(UTC)))
        for lane, head in heads.items():
            connection.execute("UPDATE onceflow.lane SET head_seq = %s WHERE lane = %s", [head, lane])
