"""docs/reference/events.md: its diagram and tables are what its program makes now, and its words name every state."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from onceflow_schemas.event_moves import STORED, State
from onceflow_schemas.failure_course import Course

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference" / "events.md").read_text("utf-8")


def test_the_page_is_current() -> None:
    made = runpy.run_path(str(DOCS / "generate_events.py"))["page"](PAGE)
    assert made == PAGE, "run: python docs/generate_events.py"


@pytest.mark.parametrize("state", STORED)
def test_every_state_is_explained_and_drawn(state: State) -> None:
    assert re.search(rf"^\| `{state}` \|", PAGE, re.MULTILINE)
    assert re.search(rf"^    \w+ --> {state}", PAGE, re.MULTILINE)


@pytest.mark.parametrize("course", Course)
def test_every_course_is_explained(course: Course) -> None:
    assert f"- *{course}*:" in PAGE
