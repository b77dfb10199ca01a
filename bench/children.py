"""The processes that are measured: parts of onceflow, peers, and the load.

Rule: each side runs as a process of its own and ends with the bench; a peer sees neither our packages nor our settings.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onceflow.embedded.child_process import Command, start_child, stop_child
from onceflow.settings import environment_for_child, process_environment

ROOT = Path(__file__).resolve().parent.parent
READY_SECONDS = 60.0
STOP_SECONDS = 20.0
POLL_SECONDS = 0.01
LOG_CHARACTERS_SHOWN = 3_000
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PACE = threading.Event()


class SideFailed(Exception):
    """A side of the bench did not do its work; the text says what its log says."""


@dataclass(frozen=True, slots=True)
class Child:
    """A running side."""

    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Raise ``SideFailed`` when it has ended."""
        code = self.process.poll()
        if code is not None:
            raise SideFailed(f"{self.log.stem} ended with {code}:\n{self.words()}")

    def words(self) -> str:
        """The end of its log."""
        return self.log.read_text("utf-8", "replace")[-LOG_CHARACTERS_SHOWN:]

    def cpu_seconds(self) -> float:
        """Return the CPU time that it has used."""
        return cpu_seconds(self.process.pid)

    def memory_bytes(self) -> int:
        """Return its own (anonymous) memory that is resident now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text("ascii")
        line = next(line for line in status.splitlines() if line.startswith("RssAnon:"))
        return int(line.split()[1]) * 1024


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, its ended children left out."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


@contextmanager
def running(name: str, argv: Sequence[str], *, environment: Mapping[str, str], folder: Path) -> Iterator[Child]:
    """Run a program until the block ends, then end it by SIGTERM.

    Args:
        name: of its log.
        argv: absolute path of the program and its arguments.
        environment: all of it.
        folder: for the log.
    """
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = start_child(Command(argv, ROOT, environment=environment), log=output)
    try:
        yield Child(process, log)
    finally:
        stop_child(process, [(signal.SIGTERM, STOP_SECONDS)])


def product_environment(overrides: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of a part of onceflow that knows these settings and no others."""
    return environment_for_child(process_environment(), {}, overrides=overrides)


def peer_environment() -> dict[str, str]:
    """Return the environment of a peer: no settings and no packages of ours."""
    return {name: text for name, text in product_environment({}).items() if not name.startswith(("PYTHON", "PG"))}


@contextmanager
def onceflow_part(command: str, *, name: str, settings: Mapping[str, Any], folder: Path) -> Iterator[tuple[Child, Any]]:
    """Run ``onceflow <command>`` until the block ends; yields it and what its state file says once it is ready."""
    state_file = folder / f"{name}.state.json"
    state_file.unlink(missing_ok=True)
    environment = product_environment({**settings, "runtime.state_file": state_file, "logs.format": "json"})
    argv = [sys.executable, "-m", "onceflow", command]
    with running(name, argv, environment=environment, folder=folder) as child:
        wait_for(state_file.exists, limit_seconds=READY_SECONDS, what=f"{name} is ready", child=child)
        yield child, json.loads(state_file.read_text("utf-8"))


def wait_for(condition: Callable[[], bool], *, limit_seconds: float, what: str, child: Child | None = None) -> None:
    """Wait until a condition holds; a child that ends meanwhile, or the limit, raises ``SideFailed``."""
    end = time.monotonic() + limit_seconds
    while not condition():
        if child is not None:
            child.check()
        if time.monotonic() > end:
            words = "" if child is None else f"\n{child.words()}"
            raise SideFailed(f"waited {limit_seconds:.0f} s in vain until {what}{words}")
        _PACE.wait(POLL_SECONDS)
