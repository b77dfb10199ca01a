"""The kinds of findings and their page."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from onceflow_schemas.findings import FINDING_KINDS

DOCS = Path(__file__).parents[2] / "docs"
NAME = re.compile(r"[a-z]+(_[a-z]+)*")


def test_the_page_is_what_the_program_writes() -> None:
    made = runpy.run_path(str(DOCS / "generate_findings.py"))["render"]()
    assert made == (DOCS / "operating" / "findings.md").read_text("utf-8"), "run: python docs/generate_findings.py"


def test_every_kind_says_what_it_means_and_what_to_type() -> None:
    for name, kind in FINDING_KINDS.items():
        assert NAME.fullmatch(name)
        assert kind.name == name
        assert kind.meaning.endswith(".")
        assert kind.first.startswith("onceflow ")
