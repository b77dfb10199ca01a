"""``python -m tests.chaos --runs N --seed SEED --only IDS``: the door of ``make chaos``."""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

from tests.chaos import report
from tests.chaos.catalogue import all_faults, make_world
from tests.chaos.runner import run_soaks
from tests.chaos.schedule import choose, schedule

SWITCH_SECONDS = 0.001
"""Proxies and senders are threads of this process; with the default of 5 ms each hop would cost that much."""


def main() -> int:
    """Run what the arguments say; 1 when a fault did not fire or something is broken."""
    arguments = _arguments()
    faults = choose(all_faults(), [name for text in arguments.only for name in text.split(",") if name])
    if arguments.list:
        for one in faults:
            print(f"{one.id:34} {one.soak:13} {one.what}")
        return 0
    sys.setswitchinterval(SWITCH_SECONDS)
    seed = arguments.seed if arguments.seed is not None else random.randrange(10**6)

    def say(line: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)

    say(f"seed {seed}, {arguments.runs} runs of {len(faults)} faults")
    began = time.monotonic()
    results = run_soaks(
        schedule(faults, seed=seed, runs=arguments.runs), make_world=make_world, say=say, keep=arguments.keep
    )
    seconds = time.monotonic() - began
    print(report.as_json(results, seed=seed) if arguments.json else report.table(results.done))
    print(f"{report.summary(results)}, seed {seed}", file=sys.stderr if arguments.json else sys.stdout)
    if arguments.evidence:
        report.EVIDENCE_PAGE.parent.mkdir(parents=True, exist_ok=True)
        report.EVIDENCE_PAGE.write_text(report.page(results, seed=seed, runs=arguments.runs, seconds=seconds))
    return 0 if results.good else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description="Faults on a running system, then the checker.")
    parser.add_argument("--runs", type=int, default=1, help="how often the whole schedule is run (N=)")
    parser.add_argument("--seed", type=int, default=None, help="of the schedule; printed when left out (SEED=)")
    parser.add_argument("--only", action="append", default=[], help="ids, rows, patterns or soaks, comma list (ONLY=)")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--evidence", action="store_true", help=f"write {report.EVIDENCE_PAGE}")
    parser.add_argument("--list", action="store_true", help="only name the faults")
    parser.add_argument("--keep", type=Path, default=None, help="a folder in which all worlds are kept")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
