"""Every block of the README is run: the two commands by the CI script, the tour here, in the order of the page."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.checker.waiting import wait_for

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# file: (\S+)\n")
STEP_SECONDS_MAX = 120
READY_SECONDS_MAX = 240.0


@dataclass(frozen=True)
class Block:
    language: str
    note: str
    text: str

    @property
    def file_name(self) -> str | None:
        found = FILE_NAME.match(self.text)
        return None if found is None else found[1]


def blocks() -> list[Block]:
    return [Block(*found.groups()) for found in BLOCK.finditer((ROOT / "README.md").read_text("utf-8"))]


def test_the_page_has_only_blocks_that_this_test_knows_how_to_run() -> None:
    for block in blocks():
        assert block.language in {"sh", "python"}, block
        assert block.language == "sh" or block.file_name is not None, block
        assert block.note.strip() in {"", "terminal"}, block


def test_the_first_two_commands_are_what_ci_runs() -> None:
    assert [block.text for block in blocks()[:2]] == ["make demo\n", "make test\n"]
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert re.search(r"\bmake\b.*\bdemo\b", script)
    assert re.search(r"\bmake\b.*\btest\b", script)


def test_what_the_tour_leaves_in_the_checkout_is_no_part_of_it() -> None:
    left = ["tour/", "ready.json", *(block.file_name for block in blocks() if block.file_name is not None)]
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    assert [name for name in left if f"/{name}" not in ignored] == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder like a checkout, as far as the tour uses it."""
    shutil.copytree(ROOT / "docs" / "examples", tmp_path / "docs" / "examples")
    return tmp_path


def test_the_tour(folder: Path) -> None:
    environment = tour_environment()
    started: list[subprocess.Popen[bytes]] = []
    said: list[str] = []
    try:
        for block in blocks()[2:]:
            if block.file_name is not None:
                (folder / block.file_name).write_text(block.text, "utf-8")
            elif block.note.strip() == "terminal":
                started.append(start(block.text, folder, environment=environment))
            else:
                # The installation is the one that runs this test.
                lines = [line for line in block.text.splitlines() if not line.startswith(("make venv", "export PATH"))]
                said.append(run("\n".join(lines), folder, environment=environment))
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    answers = "".join(said)
    assert "test_shop: ok\n" in answers
    assert re.findall(r"evt_\d \d+", answers) == ["evt_1 200", "evt_1 200", "evt_2 200", "evt_3 200"]
    seen = next(text for text in said if '"in_1"' in text)
    assert seen.count('"in_1"') == 1, seen
    assert seen.count('"in_2"') == 1, seen
    assert re.search(r"^1 +[0-9a-f-]{36} +succeeded +give_back ", said[-1], re.MULTILINE), said[-1]
    assert re.findall(r"^refund .{60}", said[-1], re.MULTILINE) != [], said[-1]
    assert said[-1].count("re_") == 2, "once in the list, once in the ledger"
    assert re.search(r"^verify: \d+ events, 0 unexplained", said[-1], re.MULTILINE), said[-1]


def tour_environment() -> dict[str, str]:
    """The environment of somebody who has installed it."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONWARNINGS": ""}


def run(script: str, folder: Path, *, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=STEP_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def start(script: str, folder: Path, *, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with (folder / "terminal.log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-eu", "-c", f"exec {script}"], cwd=folder, env=environment, stdout=log, stderr=log
        )
    ready = folder / "ready.json"
    wait_for(
        lambda: ready.exists() or process.poll() is not None,
        limit_seconds=READY_SECONDS_MAX,
        what="onceflow up is ready",
    )
    assert process.poll() is None, (folder / "terminal.log").read_text()
    return process
