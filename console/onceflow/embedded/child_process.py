"""Starts a service as a direct child that cannot outlive us, and ends it within a bounded time.

Rule: every child of the embedded services is started here, from one thread that lives as long as the process.  The
kernel sends the death signal (see ``launcher``) when the *thread* that started the child ends, so a child started
from a short-lived thread would be killed for no reason.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

LAUNCHER = Path(__file__).with_name("launcher.py")
LOG_FILE_LIMIT_BYTES = 10 * 1024 * 1024
LOG_TAIL_BYTES = 4096
KILL_WAIT_SECONDS = 10.0

# A Ctrl-C in a terminal goes to the whole foreground group.  The children stand outside of it, because the parent
# ends its processes in an order of its own.
OWN_GROUP = 0

_Start = Callable[[], "subprocess.Popen[bytes]"]


@dataclass(frozen=True, slots=True)
class Command:
    """What to run and as whom.

    Args:
        argv: absolute path of the program and its arguments.
        directory: the working directory; must exist.
        death_signal: sent by the kernel when this process dies.
        identity: see ``launcher``.
        environment: the whole environment of the child; nothing is inherited.
    """

    argv: Sequence[str]
    directory: Path
    death_signal: signal.Signals = signal.SIGKILL
    identity: str = "same"
    environment: Mapping[str, str] = field(default_factory=dict)

    def launch_argv(self) -> list[str]:
        """Return the argument list that goes through the launcher."""
        starter = [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), str(int(self.death_signal))]
        return [*starter, self.identity, str(self.directory), *self.argv]


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command that runs to its end has ended; ``output`` is stdout and stderr together."""

    exit_code: int
    output: str


class _Starter:
    """One daemon thread that starts children; it ends only with the process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._requests: queue.SimpleQueue[tuple[_Start, Future[subprocess.Popen[bytes]]]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="onceflow-child-starter", daemon=True).start()

    def start(self, request: _Start) -> subprocess.Popen[bytes]:
        answer: Future[subprocess.Popen[bytes]] = Future()
        self._requests.put((request, answer))
        return answer.result()

    def _serve(self) -> None:
        while True:
            request, answer = self._requests.get()
            try:
                answer.set_result(request())
            except BaseException as error:  # noqa: BLE001 - it belongs to the caller, who waits for it
                answer.set_exception(error)


class _StarterOfThisProcess:
    """The starter is made at the first child, and anew in a forked copy of this process, which has no threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._starter: _Starter | None = None

    def get(self) -> _Starter:
        with self._guard:
            if self._starter is None or self._starter.pid != os.getpid():
                self._starter = _Starter()
            return self._starter


_starter = _StarterOfThisProcess()


def start_child(command: Command, *, log: IO[bytes] | int, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """Start the command as a direct child; its process id is that of the real service."""
    return _starter.get().start(
        lambda: subprocess.Popen(
            command.launch_argv(),
            stdin=stdin,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=dict(command.environment),
            close_fds=True,
            process_group=OWN_GROUP,
        )
    )


def run_to_end(command: Command, *, timeout_seconds: float, text: str = "") -> Finished:
    """Run a short command with ``text`` as its input; one that takes too long is killed (exit code -9)."""
    child = start_child(command, log=subprocess.PIPE, stdin=subprocess.PIPE)
    try:
        output, _ = child.communicate(text.encode(), timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        output, _ = child.communicate(timeout=KILL_WAIT_SECONDS)
    except BaseException:
        child.kill()
        child.communicate(timeout=KILL_WAIT_SECONDS)
        raise
    return Finished(exit_code=child.returncode, output=output.decode(errors="replace"))


def ends_within(child: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for the end of a child, at most so long; True when it has ended."""
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def stop_child(child: subprocess.Popen[bytes], steps: Sequence[tuple[signal.Signals, float]]) -> int:
    """Send each signal in turn and wait its seconds; SIGKILL comes last.  Returns the exit code."""
    for step, seconds in (*steps, (signal.SIGKILL, KILL_WAIT_SECONDS)):
        if child.poll() is not None:
            break
        child.send_signal(step)
        # A stopped process takes no signal but SIGKILL until it is continued.
        child.send_signal(signal.SIGCONT)
        ends_within(child, seconds)
    return child.wait(timeout=KILL_WAIT_SECONDS)


def open_log(path: Path) -> IO[bytes]:
    """Open a log for a child to append to; a large one is set aside first, and only one old one is kept."""
    if path.exists() and path.stat().st_size > LOG_FILE_LIMIT_BYTES:
        path.replace(path.with_name(f"{path.name}.1"))
    return path.open("ab")


def log_size(path: Path) -> int:
    """Return how long the log is now, so that what a new child adds can be told apart."""
    return path.stat().st_size if path.exists() else 0


def log_since(path: Path, start: int) -> str:
    """Return what was written after ``start``, at most the last 4 kB of it."""
    if not path.exists():
        return ""
    with path.open("rb") as log:
        end = log.seek(0, os.SEEK_END)
        log.seek(max(min(start, end), end - LOG_TAIL_BYTES))
        return log.read().decode(errors="replace")


def last_line(text: str) -> str:
    """Return the last line that is not empty, without blanks around it; empty when there is none."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
