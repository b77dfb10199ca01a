"""What faults wait for: progress of the processor and of the relay, owners, epochs."""

from __future__ import annotations

from tests.chaos.world import World
from tests.checker.waiting import wait_for

TAKE_OVER_SECONDS = 40.0


def published(world: World) -> int:
    """How many outcomes are marked as published."""
    return int(world.value("SELECT sum(published_seq) FROM onceflow.lane"))


def wait_published(world: World, more: int = 20, *, limit_seconds: float = TAKE_OVER_SECONDS) -> None:
    """Wait until so many more outcomes are published."""
    goal = published(world) + more
    wait_for(lambda: published(world) >= goal, limit_seconds=limit_seconds, what=f"{more} more outcomes are published")


def processed(world: World) -> int:
    """How many events have a marker."""
    return int(world.value("SELECT count(*) FROM onceflow.inbox"))


def wait_processed(world: World, more: int = 20, *, limit_seconds: float = TAKE_OVER_SECONDS) -> None:
    """Wait until so many more events have a marker."""
    goal = processed(world) + more
    wait_for(lambda: processed(world) >= goal, limit_seconds=limit_seconds, what=f"{more} more events are processed")


def owners(world: World) -> set[str]:
    """Who has partitions."""
    return {row[0] for row in world.rows("SELECT owner FROM onceflow.progress")}


def wait_owners(world: World, count: int, *, limit_seconds: float = TAKE_OVER_SECONDS) -> None:
    """Wait until so many processors have partitions."""
    wait_for(
        lambda: len(owners(world)) == count, limit_seconds=limit_seconds, what=f"{count} processors have partitions"
    )


def epochs(world: World) -> int:
    """The sum of all epochs: it rises with each take-over."""
    return int(world.value("SELECT coalesce(sum(epoch), 0) FROM onceflow.progress"))


def lease_token(world: World) -> int:
    """The token of the relay's lease."""
    return int(world.value("SELECT max(token) FROM onceflow.lease"))
