"""The page about what stands still: a section for every code, with a first command that exists."""

from __future__ import annotations

import re
import typing
from pathlib import Path

import pytest
import typer.main

from onceflow.command_app import app
from onceflow_processor.relay.cursor import Code
from onceflow_schemas.failure import PARTITION_FAILURES

PAGE = (Path(__file__).parents[2] / "docs" / "operating" / "positions.md").read_text("utf-8")
EVENTS, LANES = PAGE.split("## Event topics", 1)[1].split("## Outcome topic", 1)


def sections(text: str) -> dict[str, str]:
    found = re.findall(r"^### `?(\w+)`?[^\n]*\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    return dict(found)


@pytest.mark.parametrize(
    "code", ["tail_lost", "log_start_passed", "fingerprint_differs", "topic_changed", "offset_out_of_range", "waiting"]
)
def test_every_code_of_a_partition(code: str) -> None:
    text = sections(EVENTS)[code]
    assert "**Money**" in text
    assert "First:" in text


@pytest.mark.parametrize("code", typing.get_args(Code))
def test_every_code_of_a_lane(code: str) -> None:
    text = sections(LANES)[code]
    assert "**Money**" in text
    assert "First:" in text


def test_no_code_is_left_out() -> None:
    assert set(PARTITION_FAILURES) <= {*sections(EVENTS), *sections(LANES)}


def test_every_command_and_flag_of_the_page_exists() -> None:
    root = typer.main.get_command(app)
    lines = re.findall(r"onceflow ((?:doctor|progress|lanes|outcomes|topics)[^`#\n]*)", PAGE)
    assert len(lines) > 15
    for line in lines:
        words, command = line.split(), root
        while words and (inner := getattr(command, "commands", {}).get(words[0])) is not None:
            command, words = inner, words[1:]
        assert not hasattr(command, "commands"), f"{line}: no such command"
        flags = {name for one in command.params for name in one.opts}
        assert {word for word in words if word.startswith("--")} <= flags, line
