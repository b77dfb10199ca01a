"""Writes diagram and tables of docs/reference/events.md from the tables in the code: ``python docs/generate_events.py``.

Rule: what stands between the two marks of the page is never edited by hand; a test compares it with what this program makes.
"""

from __future__ import annotations

from pathlib import Path

from onceflow_schemas.event_moves import FINAL, MOVES, State
from onceflow_schemas.failure_course import CLASSES, SQLSTATES, Row

PAGE = Path(__file__).parent / "reference" / "events.md"
BEGIN, END = "<!-- generated: python docs/generate_events.py -->\n", "<!-- end of what is generated -->\n"


def diagram() -> str:
    """A state diagram in mermaid's form."""
    labels: dict[tuple[State, State], list[str]] = {}
    for (before, happening), after in MOVES.items():
        labels.setdefault((before, after), []).append(happening.value)
    arrows = [f"    {before} --> {after}: {', '.join(about)}" for (before, after), about in labels.items()]
    ends = [f"    {state} --> [*]" for state in sorted(FINAL)]
    return "\n".join(["```mermaid", "stateDiagram-v2", "    [*] --> new", *arrows, *ends, "```"])


def table(title: str, rows: tuple[Row, ...]) -> str:
    """All rows of one of the tables."""
    lines = [f"| `{row.match}` | {row.course} | {row.why} |" for row in rows]
    return "\n".join([f"| {title} | what is done | why |", "|---|---|---|", *lines])


def render() -> str:
    """Return what stands between the marks."""
    parts = [diagram(), table("error class", CLASSES), table("SQLSTATE", SQLSTATES)]
    return "\n" + "\n\n".join(parts) + "\n\n"


def page(text: str) -> str:
    """Return the page with its generated part made anew."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + render() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
    print(f"wrote {PAGE}")
