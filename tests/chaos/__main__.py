"""``python -m tests.chaos --runs N --seed SEED --only IDS``: the door of ``make chaos``."""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

from tests.chaos import report
from tests.chaos.catalogue import all_faults
from tests.chaos.schedule import choose
from tests.chaos.side_by_side import Plan, run_side_by_side, say


def main() -> int:
    """Run what the arguments say; 1 when a fault did not fire or something is broken."""
    arguments = _arguments()
    only = [name for text in arguments.only for name in text.split(",") if name]
    faults = choose(all_faults(), only)
    if arguments.list:
        for one in faults:
            print(f"{one.id:34} {one.soak:13} {one.what}")
        return 0
    seed = arguments.seed if arguments.seed is not None else random.randrange(10**6)
    say(f"seed {seed}, {arguments.runs} runs of {len(faults)} faults")
    began = time.monotonic()
    plan = Plan(tuple(only), seed, arguments.runs, arguments.keep)
    results = run_side_by_side(plan, jobs=arguments.jobs)
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
    parser.add_argument("--jobs", type=int, default=1, help="how many soaks run side by side")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--evidence", action="store_true", help=f"write {report.EVIDENCE_PAGE}")
    parser.add_argument("--list", action="store_true", help="only name the faults")
    parser.add_argument("--keep", type=Path, default=None, help="a folder in which all worlds are kept")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
