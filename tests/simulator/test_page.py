"""The page about the simulator: every block runs, and every fault, knob, act and option stands on it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from onceflow_simulator.acts import ACTS
from onceflow_simulator.client import wait_until
from onceflow_simulator.endpoints import EndpointRequest
from onceflow_simulator.faults import FAULTS, Rule
from onceflow_simulator.knobs import Knobs
from tests.simulator.judge.test_command_line import FIXTURES

PAGE = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text("utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(PAGE)
PORT = "12111"
READY_SECONDS_MAX = 20.0


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def blocks(language: str) -> list[str]:
    return [text for found, text in BLOCKS if found == language]


def test_there_is_no_block_of_another_kind() -> None:
    assert {language for language, _text in BLOCKS} == {"python", "sh"}


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    shown = blocks("python")[0]
    name = re.match(r"# file: (\S+)\n", shown)
    assert name is not None
    (tmp_path / name[1]).write_text(shown, "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, "2 passed" in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.parametrize("block", [text for text in blocks("python")[1:] if PORT not in text])
def test_the_other_python_runs(block: str) -> None:
    names: dict[str, object] = {}
    if "import" not in block:
        exec("from onceflow_simulator import Simulator", names)  # noqa: S102 - said in the block before it
    exec(compile(block, "docs/simulator.md", "exec"), names)  # noqa: S102 - the page is ours, and this is its test


def test_the_commands_run(tmp_path: Path) -> None:
    (begin,) = blocks("sh")
    (ask,) = (text for text in blocks("python") if PORT in text)
    words = begin.replace("python ", f"{sys.executable} ", 1).replace(PORT, "0").split()
    state_file = tmp_path / "simulator.json"
    with subprocess.Popen(words, cwd=tmp_path) as process:
        try:
            wait_until(state_file.exists, "it is ready", timeout_seconds=READY_SECONDS_MAX)
            state = json.loads(state_file.read_text("utf-8"))
            assert set(state) == set(re.findall(r"`(\w+)`", section("As a process").split("ready:")[1].split(".")[0]))
            asked = ask.replace(f"http://127.0.0.1:{PORT}", state["url"])
            done = subprocess.run(
                [sys.executable, "-c", asked], capture_output=True, text=True, timeout=60, check=False
            )
            assert (done.returncode, done.stdout) == (0, "{'charge': {'count': 1, 'amounts': {'usd': 2000}}}\n"), (
                done.stderr
            )
        finally:
            process.terminate()
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("Faults", [*FAULTS, *Rule.model_fields]),
        ("Knobs", list(Knobs.model_fields)),
        ("What the world does", list(ACTS)),
        ("Webhooks", [name for name in EndpointRequest.model_fields if name != "url"]),
    ],
)
def test_nothing_is_left_out(title: str, names: list[str]) -> None:
    text = section(title)
    told = {name for name in names if name not in {"fault", "name"}}
    assert {name for name in told if not re.search(rf"\b{name}\b", text)} == set()


def test_every_option_stands_there() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "onceflow_simulator", "--help"], capture_output=True, text=True, check=True
    )
    options = set(re.findall(r"--[a-z-]+", done.stdout)) - {"--help"}
    assert {option for option in options if option not in section("As a process")} == set()


def test_the_number_of_fixtures() -> None:
    assert f"run {len(FIXTURES)} of its fixtures" in PAGE
