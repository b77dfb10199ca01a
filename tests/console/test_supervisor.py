"""The supervisor over parts that a test controls, and one part that is a real process."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from onceflow.exit_codes import PartFailed
from onceflow.supervisor import ProcessPart, ServicePart, Supervisor, Views
from onceflow_producer.lifetime import Lifetime
from onceflow_schemas.failure import Unavailable
from tests.waiting import wait_until

LIMIT_SECONDS = 40.0


class FakePart:
    """A part whose life a test writes down."""

    def __init__(self, name: str, order: list[str]) -> None:
        self.name = name
        self.order = order
        self.pid = 0
        self.code: int | None = None
        self.is_ready = False
        self.words = ""

    def begin(self) -> None:
        self.order.append(f"begin {self.name}")
        self.pid += 1
        self.code, self.is_ready = None, False

    def exit_code(self) -> int | None:
        return self.code

    def state(self) -> Mapping[str, Any] | None:
        return {"pid": self.pid} if self.is_ready else None

    def last_words(self) -> str:
        return self.words

    def end(self) -> None:
        self.order.append(f"end {self.name}")


class World:
    def __init__(self, folder: Path) -> None:
        self.order: list[str] = []
        self.said: list[str] = []
        self.changed: list[str] = []
        self.announced: list[Mapping[str, Any]] = []
        self.ready_file = folder / "ready.json"
        self.service, self.first, self.second = (FakePart(name, self.order) for name in ("kafka", "bridge", "relay"))
        self.service.pid, self.service.is_ready = 70, True
        views = Views(
            ready=lambda states: {"pids": {name: state["pid"] for name, state in states.items()}},
            changed=self.changed.append,
            say=self.said.append,
            announced=self.announced.append,
        )
        self.supervisor = Supervisor(
            [self.service], [self.first, self.second], ready_files=[self.ready_file], views=views
        )
        self.start = time.monotonic()

    def look(self, seconds: float) -> None:
        self.supervisor.look(self.start + seconds)

    def ready(self) -> Any:
        return json.loads(self.ready_file.read_text())["pids"] if self.ready_file.exists() else None


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_ready_file_comes_when_all_are_ready_and_again_when_a_pid_changes(world: World) -> None:
    world.look(0.0)
    assert world.order == ["begin bridge", "begin relay"]
    world.first.is_ready = True
    world.look(0.1)
    assert world.ready() is None
    world.second.is_ready = True
    world.look(0.2)
    assert world.ready() == {"kafka": 70, "bridge": 1, "relay": 1}
    assert stat.S_IMODE(world.ready_file.stat().st_mode) == 0o600
    assert world.announced == [{"pids": {"kafka": 70, "bridge": 1, "relay": 1}}]

    world.first.code = -9
    world.look(30.0)
    assert world.order == ["begin bridge", "begin relay"]
    assert "bridge: was ended by SIGKILL, starting again in 0.05 s" in world.said
    world.look(30.06)
    assert world.order[-1] == "begin bridge"
    assert world.ready() == {"kafka": 70, "bridge": 1, "relay": 1}, "until its successor is ready"
    world.first.is_ready = True
    world.look(30.1)
    assert world.ready() == {"kafka": 70, "bridge": 2, "relay": 1}
    assert len(world.announced) == 1
    assert world.changed == ["bridge", "relay", "bridge"]


def test_a_service_that_dies_is_started_again_too(world: World) -> None:
    world.service.code = 1
    world.look(0.0)
    world.look(0.1)
    assert world.order == ["begin bridge", "begin relay", "begin kafka"]


def test_a_part_that_cannot_start_ends_the_start_with_its_own_words(world: World) -> None:
    world.look(0.0)
    world.first.code, world.first.words = 3, "first line\nerror: handlers_not_found: no"
    with pytest.raises(PartFailed) as failed:
        world.look(0.1)
    assert failed.value.exit_status == 3
    assert failed.value.message == (
        "bridge ended with exit code 3; it said last:\n  | first line\n  | error: handlers_not_found: no"
    )


def test_a_part_that_keeps_failing_says_why_and_is_given_up_only_if_it_never_worked(world: World) -> None:
    for part in (world.first, world.second):
        part.is_ready = True
    world.look(0.0)
    for part in (world.first, world.second):
        part.is_ready = True
    world.look(0.1)
    assert world.ready() is not None
    now = 1.0
    for _ in range(12):
        world.second.code, world.second.words = 5, "error: broker_unavailable"
        world.look(now)
        now += 11
        world.look(now)
    assert "relay: | error: broker_unavailable" in world.said
    assert world.second.pid == 13


def test_a_start_that_takes_too_long_names_the_part(world: World) -> None:
    world.look(0.0)
    world.first.is_ready = True
    world.second.words = "waiting for godot"
    with pytest.raises(PartFailed, match=r"relay was not ready within 120 s"):
        world.look(121.0)


def test_the_end_is_in_order_and_takes_the_ready_file_away(world: World) -> None:
    world.ready_file.write_text("{}")
    lifetime = Lifetime()
    lifetime.stop("test")
    world.supervisor.run(lifetime)
    assert world.order == ["end bridge", "end relay", "end kafka"]
    assert not world.ready_file.exists()


class FakeService:
    def __init__(self) -> None:
        self.pid: int | None = 5
        self.code: int | None = None
        self.may_start = threading.Event()
        self.fail = False

    def poll(self) -> int | None:
        return self.code

    def start(self) -> None:
        self.may_start.wait(LIMIT_SECONDS)
        if self.fail:
            raise Unavailable("service_failed", "no room", "Make room.")
        self.pid, self.code = 6, None

    def wait_ready(self) -> None:
        return


def wait_for(condition: Any) -> None:
    wait_until(condition, within_seconds=LIMIT_SECONDS, why="the condition comes true")


def test_a_service_is_started_beside_the_supervisor() -> None:
    service = FakeService()
    part = ServicePart("kafka", service)
    assert (part.exit_code(), part.state()) == (None, {"pid": 5})
    service.code = -9
    assert part.exit_code() == -9
    part.begin()
    assert (part.exit_code(), part.state()) == (None, None), "a start that is under way is no end"
    service.may_start.set()
    wait_for(lambda: part.state() == {"pid": 6})
    assert part.exit_code() is None
    part.end()


def test_a_service_that_cannot_start_again_is_an_end_with_a_reason() -> None:
    service = FakeService()
    service.fail = True
    service.may_start.set()
    part = ServicePart("kafka", service)
    part.begin()
    wait_for(lambda: part.exit_code() == 5)
    assert (part.state(), part.last_words()) == (None, "service_failed: no room\nMake room.")


SCRIPT = """
import json, os, signal, sys, time
path = os.environ["STATE"]
if len(sys.argv) > 1:
    sys.exit("a reason")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
open(path + ".new", "w").write(json.dumps({"pid": os.getpid(), "folder": os.getcwd()}))
os.rename(path + ".new", path)
while True:
    time.sleep(0.1)
"""


class RealPart:
    def __init__(self, folder: Path, *arguments: str) -> None:
        self.log = folder / "part.log"
        self.state_file = folder / "part.json"
        self.part = ProcessPart(
            "part",
            arguments=[sys.executable, "-c", SCRIPT, *arguments],
            environment=lambda: {"STATE": str(self.state_file)},
            folder=folder,
            state_file=self.state_file,
            log=self.log,
        )


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealPart]:
    found = RealPart(tmp_path)
    yield found
    found.part.end()


def test_a_process_is_ready_when_its_own_state_file_says_so(real: RealPart, tmp_path: Path) -> None:
    real.state_file.write_text(json.dumps({"pid": 1}))
    assert real.part.state() is None
    real.part.begin()
    wait_for(lambda: real.part.state() is not None)
    state = real.part.state()
    assert state is not None
    assert state["folder"] == str(tmp_path)
    assert os.getpgid(state["pid"]) == state["pid"], "a Ctrl-C in the terminal goes to the supervisor alone"
    os.kill(state["pid"], signal.SIGKILL)
    wait_for(lambda: real.part.exit_code() == -9)
    real.part.begin()
    wait_for(lambda: real.part.state() is not None)
    real.part.interrupt()
    wait_for(lambda: real.part.exit_code() == 0)
    real.part.interrupt()


def test_what_a_process_said_last_is_kept(tmp_path: Path) -> None:
    real = RealPart(tmp_path, "fail")
    real.log.write_text("from an earlier start\n")
    assert real.part.exit_code() is None
    real.part.begin()
    wait_for(lambda: real.part.exit_code() == 1)
    assert real.part.last_words() == "a reason"
    assert "from an earlier start" in real.log.read_text()
    real.part.end()


def test_a_part_that_was_never_started_ends_without_harm(tmp_path: Path) -> None:
    part = RealPart(tmp_path).part
    part.interrupt()
    part.end()
