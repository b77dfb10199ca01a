"""The page of commands names each one, once, and none that there is not; its links lead to pages and chapters that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from onceflow.command_app import app

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"
ROWS = re.findall(r"^\| (`.+?) \| .* \| \[.*\]\((.+)\) \|$", PAGE.read_text("utf-8"), re.MULTILINE)


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            assert "--json" in {flag for option in command.params for flag in option.opts}, name
            yield " ".join((*path, name))


def test_every_command_stands_there_once() -> None:
    named = [name for cell, _link in ROWS for name in re.findall(r"`([^`]+)`", cell)]
    assert sorted(named) == sorted(commands(get_command(app)))


def test_every_link_leads_somewhere() -> None:
    for _cell, link in ROWS:
        name, _, chapter = link.partition("#")
        text = (PAGE.parent / name).read_text("utf-8")
        titles = {
            re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
            for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        }
        assert not chapter or chapter in titles, link
