"""A replay as a process of its own that dies or waits at a failpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.processor.processor_process import Road
from tests.processor.replay.replaying import REPLAY_SECONDS_MAX

PART_PROCESS = Path(__file__).parents[3] / "tests" / "chaos" / "part_process.py"
KILLED = -9


@contextmanager
def armed_replay(
    road: Road, *arguments: str, point: str, at: int, action: str = "kill9", **settings: str
) -> Iterator[subprocess.Popen[str]]:
    """Start a replay that does ``action`` when it passes ``point`` for the ``at``-th time."""
    plan, fired = road.folder / f"plan-{point}-{at}.json", road.folder / f"fired-{point}-{at}"
    plan.write_text(
        json.dumps({"serial": 1, "armed": [{"point": point, "action": action, "at": at, "times": 1}]}), "utf-8"
    )
    command = [sys.executable, str(PART_PROCESS), str(plan), str(fired), "replay", "--json", *arguments]
    process = subprocess.Popen(
        command,
        env={**road._environment, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=REPLAY_SECONDS_MAX)


def killed_replay(road: Road, *arguments: str, point: str, at: int, **settings: str) -> None:
    """Run a replay that is killed there."""
    with armed_replay(road, *arguments, point=point, at=at, **settings) as process:
        output, errors = process.communicate(timeout=REPLAY_SECONDS_MAX)
        assert process.returncode == KILLED, (output, errors)


def runs(road: Road) -> list[dict[str, Any]]:
    """The rows of all replays."""
    return road.rows("SELECT id, kind, state, counts, epoch, filters, reason FROM onceflow.replay_run ORDER BY id")
