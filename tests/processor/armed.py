"""A service as a process of its own that is killed (``kill9``), stopped (``stop``) or slowed down at a failpoint."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.processor.processor_process import Road, end, wait_until

PART_PROCESS = Path(__file__).parents[1] / "chaos" / "part_process.py"
KILLED = -9


@contextmanager
def armed(
    road: Road,
    point: str,
    action: str,
    *,
    at: int = 1,
    command: str = "process",
    settings: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start it, a command with its words; it does ``action`` where it passes ``point`` for the ``at``-th time."""
    # Not named by the place alone: what has fired is remembered, and an heir may be killed at the same one.
    name = f"{command}-{uuid.uuid4().hex[:6]}-{point}"
    plan, fired = road.folder / f"plan-{name}.json", road.folder / f"fired-{name}"
    plan.write_text(json.dumps({"serial": 1, "armed": [{"point": point, "action": action, "at": at, "times": 1}]}))
    log = (road.folder / f"armed-{name}.log").open("wb")
    process = subprocess.Popen(
        [sys.executable, str(PART_PROCESS), str(plan), str(fired), *command.split()],
        env={**road._environment, **(settings or {})},
        stdout=log,
        stderr=log,
    )
    try:
        yield process
    finally:
        log.close()
        if process.poll() is None:
            end(process)


def killed_at(
    road: Road, point: str, *, at: int = 1, command: str = "process", settings: Mapping[str, str] | None = None
) -> None:
    """Run it until it is killed there."""
    with armed(road, point, "kill9", at=at, command=command, settings=settings) as process:
        wait_until(lambda: process.poll() is not None, f"it is killed at {point}")
        assert process.returncode == KILLED, "it has ended by itself: see its log"
