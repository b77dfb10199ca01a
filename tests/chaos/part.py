"""One process of the product under our hands: started, killed, stopped, continued, and its failpoints set.

Rule: only processes that were started here are ever signalled.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.checker.waiting import NotReached, wait_for
from tests.faults.process_state import is_stopped, state_letter

PART_PROCESS = Path(__file__).with_name("part_process.py")
READY_SECONDS = 150.0
"""How long a start takes is not what is judged here: on a machine with ten times the work of its cores it was a minute."""
STOP_SECONDS = 40.0
FIRED_SECONDS = 40.0


@dataclass(frozen=True, slots=True)
class Firing:
    """A failpoint that fired, as the process itself wrote it down before it acted."""

    point: str
    hit: int
    action: str
    pid: int

    def __str__(self) -> str:
        return f"{self.action} at {self.point} (hit {self.hit}, pid {self.pid})"


class Part:
    """A command of the product as a process.

    Args:
        name: for its files.
        arguments: of ``onceflow``.
        environment: called at each start.
        folder: its working directory, where its files go too.
    """

    def __init__(
        self, name: str, *, arguments: list[str], environment: Callable[[], Mapping[str, str]], folder: Path
    ) -> None:
        self.name = name
        self.log = folder / "logs" / f"{name}.log"
        self.state_file = folder / f"{name}.state.json"
        self._folder = folder
        self._arguments = arguments
        self._environment = environment
        self._plan_file = folder / f"{name}.plan.json"
        self._fired_file = folder / f"{name}.fired.jsonl"
        self._plan: dict[str, Any] = {"serial": 0, "armed": []}
        self.process: subprocess.Popen[bytes] | None = None
        self._write_plan()

    def start(self) -> None:
        """Start it, without waiting."""
        assert not self.alive, f"{self.name} runs"
        self.state_file.unlink(missing_ok=True)
        argv = [sys.executable, str(PART_PROCESS), str(self._plan_file), str(self._fired_file), *self._arguments]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                argv, env=self._environment(), cwd=self._folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def wait_ready(self, limit_seconds: float = READY_SECONDS) -> None:
        """Wait until it says that it is ready."""

        def ready() -> bool:
            assert self.alive, f"{self.name} ended with {self.exit_code}: {self.last_words()}"
            return self.state_file.exists()

        wait_for(ready, limit_seconds=limit_seconds, what=f"{self.name} is ready", step_seconds=0.05)

    def wait_ended(self, limit_seconds: float = STOP_SECONDS) -> int:
        """Wait until it has ended by itself; return how."""
        assert self.process is not None
        try:
            return self.process.wait(limit_seconds)
        except subprocess.TimeoutExpired as error:
            raise NotReached(f"{self.name} did not end within {limit_seconds} s") from error

    @property
    def alive(self) -> bool:
        """It was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How it ended, None while it runs."""
        return None if self.process is None else self.process.poll()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self.process is not None
        return self.process.pid

    @property
    def state(self) -> dict[str, Any]:
        """What it said about itself when it was ready."""
        found: dict[str, Any] = json.loads(self.state_file.read_text())
        return found

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it."""
        os.kill(self.pid, number)

    def freeze(self) -> None:
        """Stop it by SIGSTOP and wait until it stands."""
        self.signal(signal.SIGSTOP)
        self.wait_stopped()

    def wait_stopped(self, limit_seconds: float = FIRED_SECONDS) -> None:
        """Wait until it stands still by SIGSTOP."""
        wait_for(
            lambda: is_stopped(self.pid), limit_seconds=limit_seconds, what=f"{self.name} stands", step_seconds=0.02
        )

    def thaw(self) -> None:
        """Let it go on."""
        if self.alive:
            self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it by SIGKILL; harmless when it has ended."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> int:
        """End it by SIGTERM; return its exit code."""
        assert self.process is not None
        self.thaw()
        self.process.terminate()
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise NotReached(f"{self.name} did not end within {STOP_SECONDS} s of SIGTERM") from error

    def arm(self, point: str, action: str, *, at: int = 1, times: int = 1) -> None:
        """Set one failpoint: from its ``at``-th hit on, ``times`` times; replaces what was set."""
        self._plan["armed"] = [{"point": point, "action": action, "at": at, "times": times}]
        self._write_plan()

    def disarm(self) -> None:
        """Set no failpoint."""
        if self._plan["armed"]:
            self._plan["armed"] = []
            self._write_plan()

    def plan(self, **whole_process: Any) -> None:
        """Set what holds from the next start on: ``clock_offset_seconds``, ``group``."""
        self._plan |= whole_process
        self._write_plan()

    def fired(self) -> list[Firing]:
        """What fired since the latest ``arm``."""
        return [
            Firing(entry["point"], entry["hit"], entry["action"], entry["pid"])
            for entry in self._entries()
            if entry.get("serial") == self._plan["serial"]
        ]

    def seen(self) -> set[str]:
        """The failpoints that this part ever passed."""
        return {entry["seen"] for entry in self._entries() if "seen" in entry}

    def wait_fired(self, count: int = 1, *, limit_seconds: float = FIRED_SECONDS) -> Firing:
        """Wait until the failpoint fired so often; return the last firing."""
        armed = self._plan["armed"]
        found = wait_for(
            lambda: self.fired() if len(self.fired()) >= count else None,
            limit_seconds=limit_seconds,
            what=f"{self.name}: {armed} fires {count} times",
            step_seconds=0.03,
        )
        return found[-1]

    def descriptors(self) -> int:
        """How many files it has open."""
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())

    def threads(self) -> int:
        """How many threads it has."""
        return sum(1 for _ in Path(f"/proc/{self.pid}/task").iterdir())

    def resident_bytes(self) -> int:
        """Its memory."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def last_words(self, lines: int = 8) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-lines:]) if self.log.exists() else ""

    def log_entries(self, event: str) -> list[dict[str, Any]]:
        """Its log lines of one event."""
        found = []
        for line in self.log.read_text("utf-8", "replace").splitlines():
            if f'"{event}"' in line and line.endswith("}"):
                entry = json.loads(line)
                if entry.get("event") == event:
                    found.append(entry)
        return found

    def is_defunct(self) -> bool:
        """It is dead and was not waited for."""
        return state_letter(self.pid) in {None, "Z", "X"}

    def _entries(self) -> list[dict[str, Any]]:
        if not self._fired_file.exists():
            return []
        return [json.loads(line) for line in self._fired_file.read_text().splitlines() if line.endswith("}")]

    def _write_plan(self) -> None:
        self._plan["serial"] += 1
        fresh = self._plan_file.with_suffix(".new")
        fresh.write_text(json.dumps(self._plan))
        fresh.replace(self._plan_file)
