"""Signals, the parent's death, the state file; in processes of their own, since signals belong to a process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from onceflow_producer.lifetime import Lifetime, say_ready, write_state
from tests.producer.bridge_process import ROOT

WAITS = """
import sys, time
from onceflow_producer.lifetime import Lifetime
with Lifetime() as lifetime:
    print("ready", flush=True)
    assert lifetime.wait(30)
    print(lifetime.reason, flush=True)
    while sys.argv[1] == "slow":
        time.sleep(0.1)  # in steps, as each wait of a service: a signal just before a wait is heard behind it
"""

UNINTERRUPTED = """
import signal, sys, threading, time
from onceflow_producer.lifetime import Lifetime
with Lifetime() as lifetime:
    # Another thread takes the signals, so none ends a wait of this one: as when it arrives just before the wait.
    threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    print("ready", flush=True)
    print(lifetime.wait(20), lifetime.reason, flush=True)
"""


@contextmanager
def running(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", script, *arguments]
    with subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            yield child
        finally:
            child.kill()


def line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_for_a_clean_stop(number: signal.Signals) -> None:
    with running(WAITS, "quick") as child:
        assert line(child) == "ready"
        child.send_signal(number)
        assert line(child) == number.name
        assert child.wait(5) == 0


def test_the_second_signal_ends_at_once() -> None:
    with running(WAITS, "slow") as child:
        assert line(child) == "ready"
        child.send_signal(signal.SIGTERM)
        assert line(child) == "SIGTERM"
        child.send_signal(signal.SIGINT)
        assert child.wait(5) == 128 + signal.SIGINT


def test_signals_in_quick_succession_never_hang() -> None:
    for _ in range(5):
        with running(WAITS, "slow") as child:
            assert line(child) == "ready"
            child.send_signal(signal.SIGTERM)
            child.send_signal(signal.SIGTERM)
            child.send_signal(signal.SIGTERM)
            if child.poll() is None:
                child.send_signal(signal.SIGINT)
            assert child.wait(5) in {128 + signal.SIGTERM, 128 + signal.SIGINT}


def test_a_signal_that_does_not_end_the_wait_is_heard_at_its_next_step() -> None:
    with running(UNINTERRUPTED) as child:
        assert line(child) == "ready"
        sent_at = time.monotonic()
        child.send_signal(signal.SIGTERM)
        assert line(child) == "True SIGTERM"
        assert time.monotonic() - sent_at < 10, "heard long before the wait is over"
        assert child.wait(5) == 0


ORPHAN = """
import os, subprocess, sys
child = '''
import sys, time
from onceflow_producer.lifetime import Lifetime
with Lifetime(parent_pid=int(sys.argv[1])) as lifetime:
    print("ready", flush=True)
    lifetime.wait(30)
    print(lifetime.reason, flush=True)
'''
subprocess.Popen([sys.executable, "-c", child, str(os.getpid())])
sys.stdin.read()
"""


def test_it_stops_when_its_parent_is_gone() -> None:
    with running(ORPHAN) as parent:
        assert line(parent) == "ready"
        parent.kill()
        assert "parent_gone" in line(parent)
        assert line(parent) == "parent_gone"


def test_another_parent_from_the_start_counts_as_gone() -> None:
    with Lifetime(parent_pid=1) as lifetime:
        assert lifetime.wait(5)
        assert lifetime.reason == "parent_gone"


def test_a_stop_from_another_thread_wakes_the_waiter_and_the_first_reason_stays() -> None:
    with Lifetime() as lifetime:
        assert not lifetime.stopping
        assert lifetime.wait(0.01) is False
        threading.Thread(target=lifetime.stop, args=("misconfigured",)).start()
        assert lifetime.wait(5)
        lifetime.stop("later")
        assert lifetime.reason == "misconfigured"
        assert lifetime.wait(0)


def test_the_signal_handlers_are_given_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Lifetime():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_state_file_is_whole_private_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "bridge.json"
    write_state(path, {"pid": 1})
    write_state(path, {"pid": 2, "url": "http://127.0.0.1:1"})
    assert json.loads(path.read_text()) == {"pid": 2, "url": "http://127.0.0.1:1"}
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_state_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "bridge.json"
    with pytest.raises(TypeError):
        write_state(path, {"pid": object()})
    assert list(tmp_path.iterdir()) == []


def test_ready_is_told_to_whoever_waits(tmp_path: Path) -> None:
    path, told = tmp_path / "state.json", []
    say_ready({"pid": 1}, state_file=path, announce=lambda state: told.append((path.exists(), dict(state))))
    assert told == [(True, {"pid": 1})]
    say_ready({"pid": 1}, state_file=None, announce=None)
