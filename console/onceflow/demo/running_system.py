"""The whole system as a child process, seen through its ready file and nothing else.

Rule: the demo owns exactly one child, ``onceflow up``.  Every other process belongs to that child; the demo knows
their process ids from the ready file, and ends nothing that is not named there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from onceflow.embedded.child_process import Command, open_log, start_child, stop_child
from onceflow_schemas.failure import Unavailable

READY_SECONDS = 240.0
"""The first start fetches the broker's jars; later ones take seconds."""

RECOVERY_SECONDS = 60.0
STOP_SECONDS = 30.0
STEP_SECONDS = 0.05
LOG_LINES_SHOWN = 15
READY_FILE = "ready.json"
UP_LOG = "up.log"


@dataclass(frozen=True, slots=True)
class Ready:
    """The ready file's content as far as the demo needs it."""

    webhook_url: str
    webhook_secret: str
    kafka_bootstrap: str
    database_url: str
    event_topic: str
    outcome_topic: str
    metrics_urls: Mapping[str, str]
    pids: Mapping[str, int]
    stripe_api_base: str = ""
    stripe_api_key: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def read_ready(path: Path) -> Ready | None:
    """Return the ready file, None while there is none."""
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    return Ready(
        webhook_url=found["webhook_url"],
        webhook_secret=found["webhook_secret"],
        kafka_bootstrap=found["kafka_bootstrap"],
        database_url=found["database_url"],
        event_topic=found["event_topic"],
        outcome_topic=found["outcome_topic"],
        metrics_urls=found.get("metrics_urls", {}),
        pids=found["pids"],
        stripe_api_base=found.get("stripe_api_base", ""),
        stripe_api_key=found.get("stripe_api_key", ""),
        environment=found.get("environment", {}),
    )


class RunningSystem:
    """``onceflow up`` in a folder of its own; a context manager that leaves no process behind.

    Args:
        folder: for the services' data, the ready file and the log of ``up``.
        environment: of the child; it must carry no settings of another installation.
        handlers: ``module:attribute`` for ``--handlers``, None for the shipped example.
    """

    def __init__(self, folder: Path, *, environment: Mapping[str, str], handlers: str | None = None) -> None:
        self.folder = folder
        self.environment = environment
        self.data_folder = folder / "data"
        self.log = folder / UP_LOG
        self._ready_file = folder / READY_FILE
        argv = [sys.executable, "-m", "onceflow", "up", "--data", str(self.data_folder)]
        argv += ["--ready-file", str(self._ready_file), "--port", "0"]
        argv += ["--handlers", handlers] if handlers is not None else []
        self._command = Command(argv, folder, death_signal=signal.SIGTERM, environment=environment)
        self._child: subprocess.Popen[bytes] | None = None
        self._pause = threading.Event()

    def start(self, *, say: Callable[[str], None] = lambda _line: None) -> Ready:
        """Start and wait until everything is ready.

        Args:
            say: called with each line that ``up`` writes meanwhile; a first start fetches the broker, which takes a while.

        Raises:
            Unavailable: it ended or did not become ready in time; the end of its log is in the message.
        """
        self._ready_file.unlink(missing_ok=True)
        with open_log(self.log) as log:
            self._child = start_child(self._command, log=log)
        end = time.monotonic() + READY_SECONDS
        told = 0
        while (ready := read_ready(self._ready_file)) is None:
            if self._child.poll() is not None:
                raise Unavailable(
                    "service_failed", f"`onceflow up` ended with {self._child.returncode}:\n{self.log_end()}"
                )
            if time.monotonic() > end:
                raise Unavailable("service_failed", f"`onceflow up` was not ready within {READY_SECONDS:.0f} s")
            told = self._tell_new_lines(told, say)
            self._pause.wait(STEP_SECONDS)
        return ready

    def _tell_new_lines(self, told: int, say: Callable[[str], None]) -> int:
        """Pass on what ``up`` has written since ``told`` lines; return how many there are now."""
        lines = self.log.read_text("utf-8", "replace").split("\n")[:-1]
        for line in lines[told:]:
            say(line)
        return len(lines)

    @property
    def ready(self) -> Ready:
        """The ready file as it is now."""
        found = read_ready(self._ready_file)
        assert found is not None, "the ready file is written before anything is asked"
        return found

    def kill(self, part: str) -> int:
        """Kill a part with SIGKILL and return the process id that it had."""
        pid = self.ready.pids[part]
        os.kill(pid, signal.SIGKILL)
        return pid

    def wait_for_successor(self, part: str, old: int) -> float:
        """Wait until the part runs under another process id; return the seconds that it took.

        Raises:
            Unavailable: it did not come back in time.
        """
        start = time.monotonic()
        while self.ready.pids.get(part, old) == old:
            if time.monotonic() - start > RECOVERY_SECONDS:
                raise Unavailable("service_failed", f"{part} was not back within {RECOVERY_SECONDS:.0f} s")
            self._pause.wait(STEP_SECONDS)
        return time.monotonic() - start

    def log_end(self) -> str:
        """The last lines that ``up`` wrote."""
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-LOG_LINES_SHOWN:])

    def stop(self) -> None:
        """End ``up`` and with it all that it started; bounded, harmless when nothing runs."""
        if self._child is not None:
            stop_child(self._child, [(signal.SIGTERM, STOP_SECONDS)])
            self._child = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
