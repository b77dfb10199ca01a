"""The results as one aligned table, as JSON, and as the page that is committed.

Rule: values in, text out; what is not measured is not written.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from tests.chaos.runner import Done, Results

EVIDENCE_CHARACTERS = 110
EVIDENCE_PAGE = Path("docs/evidence/chaos.md")


def table(done: Sequence[Done]) -> str:
    """Return one line per fault, with the sums over all runs."""
    lines = []
    for identity in dict.fromkeys(one.id for one in done):
        mine = [one for one in done if one.id == identity]
        good = sum(one.result == "ok" for one in mine)
        worst = max(one.settled_seconds for one in mine)
        shown = next((one for one in mine if one.result != "ok"), mine[0])
        text = " ".join(shown.evidence.split())[:EVIDENCE_CHARACTERS]
        lines.append((identity, shown.what, f"{good}/{len(mine)}", f"{worst:.1f}", text))
    head = ("fault", "what", "ok", "settled s", "evidence")
    widths = [max(len(line[at]) for line in [head, *lines]) for at in range(len(head) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]).rstrip()
        for line in [head, *lines]
    )


def summary(results: Results) -> str:
    """Return the last line."""
    results_of = Counter(one.result for one in results.done)
    answered = sum(one.counts.answered for one in results.judged if one.counts)
    published = sum(one.counts.published for one in results.judged if one.counts)
    violations = sum(len(one.violations) for one in results.judged)
    rows = {one.id.partition("/")[0] for one in results.done}
    word = "ok" if results.good else "FAILED"
    return (
        f"chaos: {word} - {len(results.done)} faults of {len(rows)} rows run ({dict(results_of)}), {answered} webhooks "
        f"answered 200, {published} outcomes published, {violations} violations"
    )


def as_json(results: Results, *, seed: int) -> str:
    """Return everything as one JSON object."""
    return json.dumps(
        {
            "good": results.good,
            "seed": seed,
            "faults": [asdict(one) for one in results.done],
            "soaks": [asdict(one) for one in results.judged],
            "failpoints_passed": sorted(results.seen),
        }
    )


def _machine() -> str:
    kind = f"{platform.system()} {platform.release()} {platform.machine()}"
    return f"{kind}, {os.cpu_count()} cores, Python {platform.python_version()}"


def page(results: Results, *, seed: int, runs: int, seconds: float) -> str:
    """Return the page of evidence."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    rows = [
        f"| {one.run} | {one.soak} | {one.seed} | {one.counts and one.counts.answered} | {one.counts and one.counts.published} |"
        f" {len(one.violations)} | {one.seconds:.0f} |"
        for one in results.judged
    ]
    return "\n".join(
        [
            "# Chaos: the last full run",
            "",
            "Written by `make chaos ARGS=--evidence`; `make chaos N=1 SEED=... ONLY=<fault>` repeats one of its faults.",
            "",
            f"- date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            f"- commit: {commit}",
            f"- seed: {seed}, runs: {runs}, {seconds / 60:.0f} minutes",
            f"- machine: {_machine()}",
            f"- {summary(results)}",
            "",
            "After each soak the independent checker (`tests/checker`) judged both raw topics and all tables.",
            "",
            "| run | soak | load seed | answered 200 | outcomes published | violations | seconds |",
            "| --- | --- | --- | --- | --- | --- | --- |",
            *rows,
            "",
            "```",
            table(results.done),
            "```",
            "",
        ]
    )
