"""Copies of data folders that are put back later: the only way to lose what was acknowledged.

Rule: a copy is taken of a service that stands still (the broker by SIGSTOP, PostgreSQL by a clean stop), and put back
only when the service is dead.
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from onceflow.embedded.broker_properties import LOG_FOLDER
from tests.chaos.world import World


def kafka_folder(world: World) -> Path:
    """Where the broker keeps everything."""
    return world.folder / "data" / "kafka" / LOG_FOLDER


def copy_kafka(world: World) -> Path:
    """Copy the broker's folder while it stands still; return the copy."""
    copy = world.folder / "kafka-copy"
    world.service_signal("kafka", signal.SIGSTOP)
    try:
        shutil.copytree(kafka_folder(world), copy, symlinks=True)
    finally:
        world.service_signal("kafka", signal.SIGCONT)
    return copy


def put_kafka_back(world: World, copy: Path) -> None:
    """Kill the broker, put the copy in its place, and start it."""
    world.kill_service("kafka")
    shutil.rmtree(kafka_folder(world))
    copy.rename(kafka_folder(world))
    world.start_service("kafka")


def put_topic_back(world: World, copy: Path, topic: str) -> None:
    """Kill the broker, put back the logs of one topic only, and start it: all other topics keep what they have."""
    world.kill_service("kafka")
    for older in copy.glob(f"{topic}-*"):
        shutil.rmtree(kafka_folder(world) / older.name)
        shutil.copytree(older, kafka_folder(world) / older.name)
    world.start_service("kafka")


def postgres_folder(world: World) -> Path:
    """The cluster's folder."""
    return world.folder / "data" / "postgres" / "cluster"


def copy_postgres(world: World) -> Path:
    """Copy PostgreSQL's folder: it is stopped for it and started again; return the copy."""
    copy = world.folder / "postgres-copy"
    world.services.postgres.stop()
    copy_owned(postgres_folder(world), copy)
    world.start_service("postgres")
    return copy


def put_postgres_back(world: World, copy: Path) -> None:
    """Kill PostgreSQL, put the copy in its place, and start it."""
    world.kill_service("postgres")
    shutil.rmtree(postgres_folder(world))
    copy.rename(postgres_folder(world))
    world.start_service("postgres")


def copy_owned(source: Path, target: Path) -> None:
    """Copy a tree with owners and modes: PostgreSQL refuses a folder that is not its own."""
    shutil.copytree(source, target, symlinks=True)
    for path in [source, *source.rglob("*")]:
        found = path.lstat()
        shutil.chown(target / path.relative_to(source), found.st_uid, found.st_gid)
