"""The failpoints of a process: counted from the plan on, written down before they act, never fired again by a successor."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.part_process import FailpointRaised, Failpoints

KILLED = -9
SCRIPT = """
import sys
from pathlib import Path
from tests.chaos.part_process import Failpoints
hook = Failpoints(Path(sys.argv[1]), Path(sys.argv[2]))
for _ in range(5):
    hook.hit("a.b")
"""


class Paper:
    """A plan and what was written down."""

    def __init__(self, folder: Path) -> None:
        self.plan, self.fired = folder / "plan.json", folder / "fired.jsonl"
        self._serial = 0

    def write(self, **entry: Any) -> None:
        self._serial += 1
        fresh = self.plan.with_suffix(".new")
        fresh.write_text(
            json.dumps({"serial": self._serial, "armed": [{"at": 1, "times": 1, **entry}] if entry else []})
        )
        fresh.replace(self.plan)

    def hook(self) -> Failpoints:
        return Failpoints(self.plan, self.fired)

    def lines(self) -> list[tuple[str, int]]:
        entries = [json.loads(line) for line in self.fired.read_text().splitlines()]
        return [(entry["point"], entry["hit"]) for entry in entries if "point" in entry]


@pytest.fixture
def paper(tmp_path: Path) -> Paper:
    return Paper(tmp_path)


def test_fires_at_the_hit_that_is_named(paper: Paper) -> None:
    paper.write(point="a.b", action="raise", at=3)
    hook = paper.hook()
    hook.hit("a.b")
    hook.hit("a.c")
    hook.hit("a.b")
    with pytest.raises(FailpointRaised):
        hook.hit("a.b")
    hook.hit("a.b")
    assert paper.lines() == [("a.b", 3)]


def test_fires_so_many_times(paper: Paper) -> None:
    paper.write(point="a.b", action="sleep:0", at=2, times=2)
    hook = paper.hook()
    for _ in range(5):
        hook.hit("a.b")
    assert paper.lines() == [("a.b", 2), ("a.b", 3)]


def test_plan_may_change_while_it_runs(paper: Paper) -> None:
    paper.write()
    hook = paper.hook()
    hook.hit("a.b")
    paper.write(point="a.b", action="raise", at=1)
    with pytest.raises(FailpointRaised):
        hook.hit("a.b")
    paper.write()
    hook.hit("a.b")
    assert paper.lines() == [("a.b", 1)]


def test_each_place_is_noted_when_it_is_first_passed(paper: Paper) -> None:
    paper.write()
    hook = paper.hook()
    for name in ("a.b", "a.c", "a.b"):
        hook.hit(name)
    seen = [json.loads(line).get("seen") for line in paper.fired.read_text().splitlines()]
    assert seen == ["a.b", "a.c"]


def test_killed_process_has_written_it_down_and_its_successor_goes_on(paper: Paper) -> None:
    paper.write(point="a.b", action="kill9", at=2)
    root = str(Path(__file__).resolve().parents[2])
    argv = [sys.executable, "-c", SCRIPT, str(paper.plan), str(paper.fired)]
    assert subprocess.run(argv, cwd=root, check=False).returncode == KILLED
    assert paper.lines() == [("a.b", 2)]
    assert subprocess.run(argv, cwd=root, check=False).returncode == 0
    assert paper.lines() == [("a.b", 2)]
