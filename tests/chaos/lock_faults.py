"""D8 and D9: a pooler in transaction mode, and a migration that waits behind a long reader.

Rule: nothing relies on the state of a session; whoever needs a strong lock gives up in time, and the queue behind it goes on.
"""

from __future__ import annotations

import os
import signal
import time
from hashlib import sha256
from pathlib import Path
from random import Random

import psycopg
import pytest

from onceflow.migrations import migrate
from onceflow_schemas.failure import Unavailable
from onceflow_schemas.sql import Migration, migrations
from tests.chaos.fault import fault, fired
from tests.chaos.waits import TAKE_OVER_SECONDS, processed, wait_processed, wait_published
from tests.chaos.world import World
from tests.checker.waiting import wait_for
from tests.clusters.pgbouncer import PgBouncer

POOLED_EVENTS = 60
MIGRATION_SECONDS_MAX = 9.0
"""Its own limit for a lock is 5 s."""
COLUMN = "ALTER TABLE onceflow.inbox ADD COLUMN chaos integer"


@fault("D8", "a pooler in transaction mode before PostgreSQL, killed once", soak="postgres")
def pooler(world: World, dice: Random) -> str:
    """Three server connections for all parts: locks, limits and settings of a session would leak or be lost."""
    folder = Path(world.folder / f"pooler-{dice.randrange(10**9)}")
    folder.mkdir()
    folder.chmod(0o755)
    for name in ("processor", "relay"):
        assert world.parts[name].stop() == 0
    with PgBouncer(folder, world.database_url) as bouncer:
        pooled = {"database__url": bouncer.url, "database__prepared": False}
        parts = [world.join(role, **pooled) for role in ("processor", "processor", "relay")]
        wait_processed(world, POOLED_EVENTS)
        wait_published(world, POOLED_EVENTS)
        servers = world.value(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        calm = [
            part.name
            for part in parts
            if "database_away" in part.log.read_text() or "relay_term_ended" in part.log.read_text()
        ]
        assert calm == [], f"the pooler alone was a reason to begin anew for {calm}"
        _kill_pooler(bouncer)
        bouncer.__enter__()
        wait_processed(world, POOLED_EVENTS)
        wait_published(world, POOLED_EVENTS)
        guards = world.value("SELECT count(*) FROM onceflow.batch_guard")
        assert guards == 0, f"{guards} guards were left behind"
        for part in parts:
            assert part.stop() == 0
    for name in ("processor", "relay"):
        world.restart(name)
    return fired(servers, f"two processors and a relay over {servers} server connections, the pooler killed and back")


def _kill_pooler(bouncer: PgBouncer) -> None:
    process = bouncer._process
    os.kill(process.pid, signal.SIGKILL)
    process.wait(20)


@fault("D9", "a migration waits for a long reader, and the writers wait behind it", soak="postgres")
def lock_queue(world: World, dice: Random) -> str:
    """It gives up after its own limit, without a trace; the road goes on by itself, and later it goes through at once."""
    version = "29990101000000"
    text = f"SET LOCAL lock_timeout = '5s'; {COLUMN}"
    waiting = Migration(version, "chaos", text, "", transactional=True, sha256=sha256(text.encode()).hexdigest())
    for one in migrations():
        assert "SET LOCAL lock_timeout" in one.up or not one.transactional, f"{one.name} may wait for ever"
    with psycopg.connect(world.database_url) as reader:
        reader.execute("SELECT count(*) FROM onceflow.inbox")
        began = time.monotonic()
        with (
            psycopg.connect(world.database_url) as runner,
            pytest.raises(Unavailable, match="waited too long for a lock"),
        ):
            migrate(runner, release=[*migrations(), waiting])
        took = time.monotonic() - began
        # The reader is still there: the queue went on because the migration gave up.
        wait_processed(world, 20, limit_seconds=TAKE_OVER_SECONDS)
    assert took < MIGRATION_SECONDS_MAX, f"the migration held the queue for {took:.1f} s"
    kept = world.value(
        "SELECT count(*) FROM information_schema.columns WHERE table_schema = 'onceflow' AND column_name = 'chaos'"
    )
    assert kept == 0
    assert world.value("SELECT count(*) FROM onceflow.schema_migrations WHERE version = %s", version) == 0
    with psycopg.connect(world.database_url) as later:
        later.execute("SET LOCAL lock_timeout = '5s'")
        later.execute(COLUMN.encode())
        later.rollback()
    before = processed(world)
    wait_for(lambda: processed(world) > before, limit_seconds=TAKE_OVER_SECONDS, what="the road goes on")
    assert all(world.parts[name].alive for name in ("processor", "relay"))
    return f"a migration behind a reader gave up after {took:.1f} s, writers waited meanwhile and went on"
