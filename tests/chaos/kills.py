"""A process killed at one of its failpoints, and started again."""

from __future__ import annotations

import signal

from tests.chaos.points import AT_START
from tests.chaos.world import World


def kill_at(world: World, part: str, point: str, *, at: int) -> str:
    """Kill a part at a failpoint and start it again; a place that is passed only at the start is met by a restart.

    Args:
        world: with a load on it.
        part: the name of the part.
        point: the failpoint.
        at: which hit.
    """
    process = world.parts[part]
    if point in AT_START:
        process.stop()
        process.arm(point, "kill9")
        process.start()
    else:
        process.arm(point, "kill9", at=at)
    firing = process.wait_fired()
    assert process.wait_ended() == -signal.SIGKILL
    world.restart(part)
    return str(firing)
