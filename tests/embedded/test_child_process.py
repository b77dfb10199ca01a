"""No child outlives its parent, and every stop is bounded."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceflow.embedded.child_process import (
    Command,
    last_line,
    log_since,
    log_size,
    open_log,
    run_to_end,
    start_child,
    stop_child,
)
from tests.checker.waiting import wait_for
from tests.embedded.process_state import is_alive, wait_gone

SLEEP = ["/bin/sleep", "300"]
STUBBORN = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: print("not now", flush=True))
print("ready", flush=True)
while True: signal.pause()
"""
PARENT = """
import pathlib, signal, sys, threading
from onceflow.embedded.child_process import Command, start_child
pids = []
def begin():
    child = start_child(Command(["/bin/sleep", "300"], directory=pathlib.Path("/")), log=-3)
    pids.append(child.pid)
thread = threading.Thread(target=begin)
thread.start()
thread.join()
print(pids[0], flush=True)
for number in (signal.SIGINT, signal.SIGHUP):  # nohup and shells ignore them in what runs in the background
    signal.signal(number, signal.SIG_DFL)
signal.pause()
"""


@contextlib.contextmanager
def child_of(tmp_path: Path, argv: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    with open_log(tmp_path / "log") as log:
        child = start_child(Command(argv, directory=tmp_path), log=log)
    yield child
    child.kill()
    child.wait(10)


def test_the_child_is_the_program_itself(tmp_path: Path) -> None:
    with child_of(tmp_path, SLEEP) as child:
        wait_for(
            lambda: Path(f"/proc/{child.pid}/cmdline").read_bytes() == b"/bin/sleep\x00300\x00",
            limit_seconds=40,
            what="the launcher becomes the program",
        )
        assert os.getpgid(child.pid) == child.pid


def test_a_child_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    children: list[subprocess.Popen[bytes]] = []
    command = Command(SLEEP, directory=tmp_path)
    thread = threading.Thread(target=lambda: children.append(start_child(command, log=subprocess.DEVNULL)))
    thread.start()
    thread.join()
    with pytest.raises(subprocess.TimeoutExpired):
        children[0].wait(timeout=0.5)
    assert stop_child(children[0], ()) == -signal.SIGKILL


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_child_dies_with_its_parent(death: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.send_signal(death)
        parent.wait(10)
        wait_gone(pid)


def test_a_stopped_child_dies_with_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        # Until it has become the command it may not have asked the kernel for the signal yet.
        wait_for(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", limit_seconds=30, what="it is the command")
        os.kill(pid, signal.SIGSTOP)
        parent.kill()
        parent.wait(10)
        wait_gone(pid)


def test_a_stop_goes_from_asking_to_force(tmp_path: Path) -> None:
    with child_of(tmp_path, [sys.executable, "-c", STUBBORN]) as child:
        wait_for(lambda: "ready" in log_since(tmp_path / "log", 0), limit_seconds=40, what="the child is ready")
        assert stop_child(child, [(signal.SIGTERM, 3.0)]) == -signal.SIGKILL
        assert "not now" in log_since(tmp_path / "log", 0)


def test_a_paused_child_can_be_asked_to_end(tmp_path: Path) -> None:
    with child_of(tmp_path, SLEEP) as child:
        child.send_signal(signal.SIGSTOP)
        assert stop_child(child, [(signal.SIGTERM, 10.0)]) == -signal.SIGTERM
        assert stop_child(child, [(signal.SIGTERM, 10.0)]) == -signal.SIGTERM


def test_a_short_command_gets_its_input_and_a_slow_one_is_killed(tmp_path: Path) -> None:
    finished = run_to_end(Command(["/bin/cat"], directory=tmp_path), timeout_seconds=20, text="hello")
    assert (finished.exit_code, finished.output) == (0, "hello")
    assert run_to_end(Command(SLEEP, directory=tmp_path), timeout_seconds=0.3).exit_code == -signal.SIGKILL


def test_logs_are_appended_to_and_a_large_one_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert (log_size(path), log_since(path, 0)) == (0, "")
    with open_log(path) as log:
        log.write(b"first\n")
    with open_log(path) as log:
        log.write(b"second\n")
    assert log_since(path, 6) == "second\n"
    path.write_bytes(b"x" * (10 * 1024 * 1024 + 1))
    with open_log(path) as log:
        log.write(b"third\n")
    assert path.read_bytes() == b"third\n"
    assert log_size(tmp_path / "log.1") == 10 * 1024 * 1024 + 1
    # The place from which was asked is beyond the end now, since the log was set aside.
    assert log_since(path, 1000) == ""


def test_the_tail_of_a_log_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a" * 10_000 + b"\nlast \n\n")
    assert len(log_since(path, 0)) == 4096
    assert last_line(log_since(path, 0)) == "last"
    assert last_line("\n \n") == ""
