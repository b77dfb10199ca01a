"""The last act: Stripe's list beside the ledgers, as ``onceflow verify`` counts them.

Rule: what the simulated Stripe lists is what was sent, told from the plan and never from our own tables.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from onceflow.demo.proof_count import Proved
from onceflow.demo.running_system import RunningSystem
from onceflow_schemas.failure import Unavailable
from onceflow_simulator import SimulatorClient

COMMAND_SECONDS = 120.0
TELL_EVENTS = 500
_LAST_LINE = re.compile(r"verify: (\d+) events, (\d+) unexplained")


def prove(system: RunningSystem, events: list[dict[str, Any]], *, say: Callable[[str], None]) -> Proved:
    """Have the simulated Stripe list the events, and run ``onceflow verify``.

    Raises:
        Unavailable: it could not look at all ledgers.
    """
    client = SimulatorClient(system.ready.stripe_api_base)
    for start in range(0, len(events), TELL_EVENTS):
        client.tell_events(events[start : start + TELL_EVENTS])
    say("$ onceflow verify")
    done = subprocess.run(
        [sys.executable, "-m", "onceflow", "verify"],
        cwd=system.folder,
        env={**system.environment, **system.ready.environment},
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    lines = done.stdout.splitlines()
    last = _LAST_LINE.fullmatch(lines[-1]) if lines else None
    if last is None:
        raise Unavailable("service_failed", f"`onceflow verify` ended with {done.returncode}: {done.stderr[-400:]}")
    for line in [*done.stderr.splitlines(), lines[-1]]:
        say(f"  {line}")
    differences = tuple(line for line in done.stderr.splitlines() if line.startswith("unexplained: "))
    return Proved(int(last[1]), int(last[2]), differences)
