"""D1, D5, D11: commands that die half-way, a full disk, a standby.

Rule: a command that was killed is run again and finishes; a database that cannot be written pauses the processor and
nobody else; one that is the wrong one is refused at start.
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from random import Random
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from onceflow.embedded.data_folder import DataFolder
from onceflow.embedded.postgres_server import PostgresServer
from tests.chaos.fault import fault, fired
from tests.chaos.sending import body_of, event, post
from tests.chaos.snapshots import copy_owned
from tests.chaos.waits import processed, wait_processed, wait_published
from tests.chaos.world import World
from tests.checker.waiting import wait_for

FULL_SECONDS = 40.0
LANES = 6


def _new_database(world: World, dice: Random) -> str:
    name = f"fresh_{dice.randrange(10**9)}"
    world.rows(f"CREATE DATABASE {name}")
    return make_conninfo(world.database_url, dbname=name)


def _run(world: World, name: str, command: list[str], *, kill_at: str | None, **settings: Any) -> int:
    """Run a command to its end; return its exit code."""
    part = world.part(name, role="processor", command=command, **settings)
    if kill_at is not None:
        part.arm(kill_at, "kill9")
    part.start()
    code = part.wait_ended()
    if kill_at is not None:
        fired(part.fired(), f"{kill_at} fired")
    else:
        assert code == 0, part.last_words()
    return code


@fault("D1/migrate", "the migrations runner is killed half-way", soak="data", points=("migrate.before_record",))
def migrate_killed(world: World, dice: Random) -> str:
    """One transaction per migration: run again, it finishes."""
    url = _new_database(world, dice)
    name = f"migrate-{dice.randrange(10**9)}"
    code = _run(world, name, ["migrate"], kill_at="migrate.before_record", database__url=url)
    with psycopg.connect(url) as connection:
        [half] = connection.execute("SELECT to_regclass('onceflow.inbox')::text").fetchone() or [None]
    again = _run(world, f"{name}-again", ["migrate"], kill_at=None, database__url=url)
    assert (code, half) == (-signal.SIGKILL, None), (code, half)
    return f"killed before its record ({code}), nothing was kept; again: {again}"


@fault("D1/topics", "topics apply is killed before it made the lanes", soak="data", points=("topics.before_lanes",))
def topics_killed(world: World, dice: Random) -> str:
    """Topics without lanes; run again, it makes them."""
    number = dice.randrange(10**9)
    settings = {
        "database__url": _new_database(world, dice),
        "topics__events": f"chaos.events.{number}",
        "topics__outcomes": f"chaos.outcomes.{number}",
    }
    _run(world, f"topics-migrate-{number}", ["migrate"], kill_at=None, **settings)
    code = _run(world, f"topics-{number}", ["topics", "apply"], kill_at="topics.before_lanes", **settings)
    _run(world, f"topics-again-{number}", ["topics", "apply"], kill_at=None, **settings)
    with psycopg.connect(settings["database__url"]) as connection:
        [lanes] = connection.execute("SELECT count(*) FROM onceflow.lane").fetchone() or [0]
    assert lanes == LANES, lanes
    return f"killed before the lanes ({code}); again: {lanes} lanes"


@fault("D5/disk", "PostgreSQL's disk is full", soak="disk", last=True)
def disk_full(world: World, dice: Random) -> str:
    """Webhooks are taken on, processing pauses, and goes on when there is room again."""
    assert world.disk is not None
    if not world.disk.mounted:
        return _planted_full(world, dice)
    taken_bytes = world.disk.fill()
    wait_for(lambda: _says_full(world), limit_seconds=FULL_SECONDS, what="PostgreSQL says that the disk is full")
    answers = [post(world, body_of(event()))[0] for _ in range(3)]
    world.load.wait_for_answers(30)
    world.disk.empty()
    world.heal()
    wait_processed(world, 40)
    wait_published(world, 20)
    assert answers == [200, 200, 200], answers
    return f"{taken_bytes // 1024 // 1024} MiB taken, disk full, webhooks {answers}, then on by itself"


def _says_full(world: World) -> bool:
    log = world.folder / "data" / "logs" / "postgres.log"
    told = any("No space left" in path.read_text("utf-8", "replace") for path in (log,) if path.exists())
    words = "".join(world.parts[name].log.read_text("utf-8", "replace") for name in ("processor", "relay"))
    return told or "No space left" in words or "53100" in words


def _planted_full(world: World, dice: Random) -> str:
    """Where nothing may be mounted: the state alone, raised by a trigger."""
    from tests.chaos.postgres_faults import plant_state, planted_count, unplant_state  # noqa: PLC0415

    plant_state(world, "53100", table="onceflow.outcome", after=dice.randrange(2, 20), times=5)
    try:
        wait_for(lambda: planted_count(world) > 30, limit_seconds=FULL_SECONDS, what="the state was raised")
    finally:
        unplant_state(world)
    wait_processed(world)
    return "5 x 53100 raised by a trigger (nothing may be mounted here)"


@fault("D11", "the database is a standby", soak="standby", last=True, quiet=True)
def standby(world: World, dice: Random) -> str:
    """Deciding on a replica would decide on the past: refused at start."""
    with world.loaded() as load:
        load.wait_for_answers(50)
    world.services.postgres.stop()
    root = world.folder / "standby"
    copy_owned(world.folder / "data" / "postgres", _made(root) / "postgres")
    world.start_service("postgres")
    world.heal()
    (root / "postgres" / "ports.json").unlink(missing_ok=True)
    signal_file = root / "postgres" / "cluster" / "standby.signal"
    signal_file.touch()
    owner = (root / "postgres" / "cluster").stat()
    shutil.chown(signal_file, owner.st_uid, owner.st_gid)
    folder = DataFolder(root)
    folder.claim()
    server = PostgresServer(folder, progress=lambda _line: None)
    try:
        server.start()
        server.wait_ready()
        part = world.part("processor-on-standby", role="processor", database__url=server.url)
        part.start()
        code = part.wait_ended(90)
        words = part.last_words(3)
    finally:
        server.stop()
        folder.release()
    assert code in (3, 5), (code, words)
    assert not part.state_file.exists()
    assert "standby" in words, words
    before = processed(world)
    with world.loaded() as load:
        load.wait_for_answers(30)
    return f"a processor on a standby ended with {code}; on the primary {before} markers and on"


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
