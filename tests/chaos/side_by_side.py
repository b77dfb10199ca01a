"""Runs the soaks of a schedule in processes of their own, one or several at a time.

Rule: a soak owns its world, so two of them meet nowhere but on the machine; the results come in the schedule's order.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.catalogue import all_faults, make_world
from tests.chaos.runner import Results, merged, run_soaks
from tests.chaos.schedule import Soak, choose, schedule

SWITCH_SECONDS = 0.001
"""Proxies and senders are threads of a soak's process; with the default of 5 ms each hop would cost that much."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a schedule follows from, and where worlds are kept; plain values, since no process can send faults to another."""

    only: tuple[str, ...]
    seed: int
    runs: int
    keep: Path | None

    def soaks(self) -> list[Soak]:
        """Return the schedule."""
        return schedule(choose(all_faults(), self.only), seed=self.seed, runs=self.runs)


def run_side_by_side(plan: Plan, *, jobs: int) -> Results:
    """Run all soaks of a plan, ``jobs`` at a time."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context) as pool:
        parts = [pool.submit(_run_one, plan, index) for index in range(len(plan.soaks()))]
        return merged([part.result() for part in parts])


def _run_one(plan: Plan, index: int) -> Results:
    sys.setswitchinterval(SWITCH_SECONDS)
    soak = plan.soaks()[index]
    return run_soaks([soak], make_world=make_world, say=lambda line: say(f"{soak.name:13} {line}"), keep=plan.keep)


def say(line: str) -> None:
    """Tell people how it goes."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)
