"""The kinds of findings and their page."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from typer.main import get_command

from onceflow.command_app import app
from onceflow_schemas.findings import FINDING_KINDS
from tests.docs.test_commands import commands

DOCS = Path(__file__).parents[2] / "docs"
NAME = re.compile(r"[a-z]+(_[a-z]+)*")
COMMAND = re.compile(r"`(onceflow [a-z][^`]*)`")


def test_the_pages_are_what_the_program_writes() -> None:
    made = runpy.run_path(str(DOCS / "generate_findings.py"))["render"]()
    operating = DOCS / "operating"
    for place, text in made.items():
        assert text == (operating / place).read_text("utf-8"), "run: python docs/generate_findings.py"
    kept = {f"findings/{page.name}" for page in (operating / "findings").iterdir()}
    assert kept == made.keys() - {"findings.md"}, "pages of kinds that there are no more"


def test_every_kind_says_what_it_means_and_what_to_type() -> None:
    known = set(commands(get_command(app)))
    for name, kind in FINDING_KINDS.items():
        assert NAME.fullmatch(name)
        assert kind.name == name
        assert kind.meaning.endswith(".")
        assert kind.first.startswith("onceflow ")
        assert kind.person.endswith(".")
        for command in (kind.first, *COMMAND.findall(kind.person)):
            words = command.split()[1:]
            assert {words[0], " ".join(words[:2])} & known, f"{name}: there is no {command}"
