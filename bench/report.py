"""What a run says: one table, and one JSON file with the plain numbers under their names.

Rule: the numbers of one report come from one run; a run of some groups does not touch the evidence of a whole one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.children import ROOT
from bench.figures import Figure, Measured

LATEST = ROOT / "bench" / "latest.json"
LATEST_LARGE = ROOT / "bench" / "latest-large.json"
EVIDENCE = ROOT / "docs" / "evidence" / "bench.md"
EVIDENCE_LARGE = ROOT / "docs" / "evidence" / "bench-large.md"
LATEST_VERIFY = ROOT / "bench" / "latest-verify.json"
EVIDENCE_VERIFY = ROOT / "docs" / "evidence" / "verify.md"
COMMANDS = {EVIDENCE_LARGE: "make bench-large", EVIDENCE_VERIFY: "make bench-verify"}
HEADINGS = ("figure", "goal", "measured", "ok", "what")


def as_json(measured: Sequence[Measured], *, about: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the content of ``latest.json``: figure -> number, then what they rest on under ``about``."""
    details = {
        one.figure.name: {
            "goal": one.figure.goal,
            "ok": one.figure.is_met(one.value),
            "unit": one.figure.unit,
            "rates": {side: [round(rate, 3) for rate in rates] for side, rates in one.rates.items()},
            "notes": {name: round(note, 4) for name, note in one.notes.items()},
        }
        for one in measured
    }
    return {**{one.figure.name: round(one.value, 4) for one in measured}, "about": {**about, "figures": details}}


def rows(measured: Sequence[Measured]) -> list[tuple[str, ...]]:
    """Return the cells of the table."""
    return [
        (
            one.figure.name,
            _goal(one.figure),
            f"{one.value:.2f} {one.figure.unit}",
            {True: "yes", False: "NO", None: "-"}[one.figure.is_met(one.value)],
            one.figure.says,
        )
        for one in measured
    ]


def as_table(measured: Sequence[Measured]) -> str:
    """Return the table for a terminal, its columns aligned."""
    lines = [HEADINGS, *rows(measured)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS) - 1)]
    return "\n".join(
        "  ".join((*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1])) for line in lines
    )


def as_page(
    measured: Sequence[Measured], *, about: Mapping[str, Mapping[str, str]], command: str = "make bench"
) -> str:
    """Return the page ``docs/evidence/bench.md``, or that of another command."""
    lines = [
        "# Bench",
        "",
        f"Written by `{command}`; each ratio is the median of rounds in which both sides took turns. What is compared, and",
        "what the figures do not say: [../../bench/README.md](../../bench/README.md).",
        "",
        f"| {' | '.join(HEADINGS)} |",
        f"|{' --- |' * len(HEADINGS)}",
        *(f"| {' | '.join(cells)} |" for cells in rows(measured)),
        "",
        "Rates behind the ratios (each round), and notes:",
        "",
        *_details(measured),
        "",
        *(f"- {name}: {text}" for section in about.values() for name, text in section.items()),
        "",
    ]
    return "\n".join(lines)


def write(
    measured: Sequence[Measured], *, about: Mapping[str, Mapping[str, str]], json_file: Path, page: Path | None
) -> None:
    """Write the JSON file, and the page when one is named."""
    json_file.write_text(json.dumps(as_json(measured, about=about), indent=2) + "\n", "utf-8")
    if page is not None:
        page.parent.mkdir(parents=True, exist_ok=True)
        command = COMMANDS.get(page, "make bench")
        page.write_text(as_page(measured, about=about, command=command), "utf-8")


def _details(measured: Sequence[Measured]) -> list[str]:
    lines = []
    for one in measured:
        sides = [f"{side} {', '.join(f'{rate:,.0f}' for rate in rates)}" for side, rates in one.rates.items()]
        notes = [f"{name} {note:,.2f}" for name, note in one.notes.items()]
        if sides or notes:
            lines.append(f"- {one.figure.name}: {'; '.join([*sides, *notes])}")
    return lines


def _goal(figure: Figure) -> str:
    if figure.goal is None:
        return "report"
    return f"{'<=' if figure.at_most else '>='} {figure.goal:g}"
