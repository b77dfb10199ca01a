"""docs/reference/failures.md is what its program writes now, and every code stands in it once."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from onceflow_schemas.failure import FAILURES

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference" / "failures.md").read_text("utf-8")


def test_the_page_is_current() -> None:
    made = runpy.run_path(str(DOCS / "generate_failures.py"))["render"]()
    assert made == PAGE, "run: python docs/generate_failures.py"


def test_every_code_stands_in_the_page_once() -> None:
    assert sorted(re.findall(r"^\| `([a-z0-9_]+)` \|", PAGE, re.MULTILINE)) == sorted(FAILURES)
