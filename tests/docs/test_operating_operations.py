"""The page for operators of operations: a section for every code of a review, and commands that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main

from onceflow.command_app import app
from onceflow_schemas.operations.failures import REVIEW_FAILURES

PAGE = (Path(__file__).parents[2] / "docs" / "operating" / "operations.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^##+ `?([\w ]+)`?\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("code", REVIEW_FAILURES)
def test_every_code_of_a_review_says_whether_money_is_at_risk_and_what_to_do(code: str) -> None:
    assert "**Money**" in SECTIONS[code]
    assert "resolve" in SECTIONS[code] or "As `operation_unproved`" in SECTIONS[code] or "cancel ID" in SECTIONS[code]


@pytest.mark.parametrize("title", ["Unknown", "Review", "Paused accounts"])
def test_each_trouble_begins_with_a_command(title: str) -> None:
    assert "First: `onceflow operations " in SECTIONS[title]


def test_every_command_and_flag_of_the_page_exists() -> None:
    commands = typer.main.get_command(app).commands["operations"].commands  # type: ignore[attr-defined]
    lines = re.findall(r"onceflow operations ([a-z][^`#\n]*)", PAGE)
    assert len(lines) > 12
    for line in lines:
        name, *words = line.split()
        flags = {flag for one in commands[name].params for flag in one.opts}
        assert {word for word in words if word.startswith("--")} <= flags, line
