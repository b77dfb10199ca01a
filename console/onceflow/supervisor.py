"""Keeps the parts of ``onceflow up`` running: looks, asks ``supervision`` what to do, does it.

Rule: one thread looks at every part in turn and never waits for one of them; what takes long (a broker's start) runs
beside it.  The ready file is written when all parts are ready, and again whenever it would say something else.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from onceflow import supervision
from onceflow.embedded.child_process import Command, log_since, log_size, open_log, start_child, stop_child
from onceflow.exit_codes import PartFailed
from onceflow.supervision import Track
from onceflow_producer.lifetime import Lifetime, write_state
from onceflow_schemas.failure import Failure

POLL_SECONDS = 0.05
START_SECONDS_MAX = 120.0
STOP_STEPS = ((signal.SIGTERM, 15.0),)
BEGIN_SECONDS_MAX = 70.0
SHOWN_LINES_MAX = 8
EXIT_OF_FAILED_START = 5


class Part(Protocol):
    """One thing that is kept running."""

    name: str

    def begin(self) -> None:
        """Start it; returns at once."""

    def exit_code(self) -> int | None:
        """None while it runs or starts, else how it ended (negative: by that signal)."""

    def state(self) -> Mapping[str, Any] | None:
        """What it says about itself once it is ready, with ``pid``; None until then."""

    def last_words(self) -> str:
        """What it said before it ended, for people."""

    def end(self) -> None:
        """Stop it within a bounded time; harmless when it does not run."""


class ProcessPart:
    """One of our own services as a child process.

    Args:
        name: also that of its log and its state file.
        arguments: of our own interpreter.
        environment: called at each start, so that it says where the other parts are now.
        folder: where it runs; the user's handlers are looked for there.
        state_file: written by the child when it is ready.
        log: gets its output.
    """

    def __init__(
        self,
        name: str,
        *,
        arguments: Sequence[str],
        environment: Callable[[], Mapping[str, str]],
        folder: Path,
        state_file: Path,
        log: Path,
    ) -> None:
        self.name = name
        self._arguments = list(arguments)
        self._environment = environment
        self._folder = folder
        self._state_file = state_file
        self._log = log
        self._log_start = 0
        self._child: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Start it; see ``Part``."""
        self._state_file.unlink(missing_ok=True)
        self._log_start = log_size(self._log)
        # The death signal is the hard one: a supervisor that was killed leaves nothing behind, and every part is
        # made to be killed.  Nothing is inherited, so the environment is complete.
        command = Command(self._arguments, self._folder, death_signal=signal.SIGKILL, environment=self._environment())
        with open_log(self._log) as log:
            self._child = start_child(command, log=log)

    def exit_code(self) -> int | None:
        """How it ended; see ``Part``."""
        return None if self._child is None else self._child.poll()

    def state(self) -> Mapping[str, Any] | None:
        """What its state file says, once that is of this very process; see ``Part``."""
        try:
            state: dict[str, Any] = json.loads(self._state_file.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return state if self._child is not None and state.get("pid") == self._child.pid else None

    def last_words(self) -> str:
        """The last lines of its log; see ``Part``."""
        return "\n".join(log_since(self._log, self._log_start).splitlines()[-SHOWN_LINES_MAX:])

    def interrupt(self) -> None:
        """Ask it to end; it will be started again."""
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """Stop it; see ``Part``."""
        if self._child is not None:
            stop_child(self._child, STOP_STEPS)


class Service(Protocol):
    """An embedded service, as ``onceflow.embedded`` has them."""

    @property
    def pid(self) -> int | None:
        """The process id; None before the first start."""

    def poll(self) -> int | None:
        """How it ended, None while it runs."""

    def start(self) -> None:
        """Start it."""

    def wait_ready(self) -> None:
        """Wait until it answers."""


class ServicePart:
    """An embedded service that runs already; a new start takes seconds and so has a thread of its own.

    Args:
        name: ``postgres`` or ``kafka``.
        service: started and ready.
    """

    def __init__(self, name: str, service: Service) -> None:
        self.name = name
        self._service = service
        self._starting: threading.Thread | None = None
        self._failure: Failure | None = None

    def begin(self) -> None:
        """Start it again; see ``Part``."""
        self._failure = None
        self._starting = threading.Thread(target=self._start, name=f"start-{self.name}", daemon=True)
        self._starting.start()

    def exit_code(self) -> int | None:
        """How it ended, also when it could not be started; see ``Part``."""
        if self._starting is not None:
            if self._starting.is_alive():
                return None
            self._starting = None
        return EXIT_OF_FAILED_START if self._failure is not None else self._service.poll()

    def state(self) -> Mapping[str, Any] | None:
        """Its process id; see ``Part``."""
        busy = self._starting is not None and self._starting.is_alive()
        return None if busy or self._failure is not None else {"pid": self._service.pid}

    def last_words(self) -> str:
        """Why its last start failed; see ``Part``."""
        return "" if self._failure is None else f"{self._failure}\n{self._failure.hint}"

    def end(self) -> None:
        """Wait for a start that is under way, so that nothing is started after the stop; see ``Part``."""
        if self._starting is not None:
            self._starting.join(BEGIN_SECONDS_MAX)

    def _start(self) -> None:
        try:
            self._service.start()
            self._service.wait_ready()
        except Failure as failure:
            self._failure = failure


@dataclass(frozen=True, slots=True)
class Views:
    """What the supervisor calls while it works.

    Attributes:
        ready: called with the states of all parts when all are ready; returns the content of the ready file.
        changed: called with the name of a service that is ready again, before its dependants are looked at.
        say: called with one line for people.
        announced: called after the ready file was written for the first time.
    """

    ready: Callable[[Mapping[str, Mapping[str, Any]]], Mapping[str, Any]]
    changed: Callable[[str], None]
    say: Callable[[str], None]
    announced: Callable[[Mapping[str, Any]], None]


class Supervisor:
    """Runs the parts until it is told to stop.

    Args:
        running: parts that run already (the embedded services).
        parts: parts to start, in this order.
        ready_files: where the content of the ready file goes.
        views: see ``Views``.
    """

    def __init__(
        self, running: Sequence[Part], parts: Sequence[Part], *, ready_files: Sequence[Path], views: Views
    ) -> None:
        self._parts = [*running, *parts]
        self._end_order = [*parts, *running]
        self._ready_files = ready_files
        self._views = views
        now = time.monotonic()
        self._tracks: dict[str, Track] = {part.name: Track() for part in parts}
        self._tracks |= {part.name: supervision.became_ready(Track(), now) for part in running}
        self._written: Mapping[str, Any] | None = None
        self._start_by = now + START_SECONDS_MAX

    def run(self, lifetime: Lifetime) -> None:
        """Keep everything running until the lifetime ends, then stop the parts; the services belong to their owner.

        Raises:
            PartFailed: a part cannot be started for the first time.
        """
        try:
            while not lifetime.wait(POLL_SECONDS):
                self.look(time.monotonic())
        finally:
            self.end()

    @property
    def was_ready(self) -> bool:
        """All parts were ready at the same time at least once."""
        return self._written is not None

    def look(self, now: float) -> None:
        """Look at every part once and do what is due."""
        for part in self._parts:
            self._look_at(part, now)
        self._write_ready()
        if self._written is None and now > self._start_by:
            late = [part for part in self._parts if self._tracks[part.name].phase != "ready"]
            raise self._given_up(late[0], f"was not ready within {START_SECONDS_MAX:.0f} s")

    def end(self) -> None:
        """Stop the parts in the order of their start; of a service only a start that is under way is waited for."""
        for path in self._ready_files:
            path.unlink(missing_ok=True)
        for part in self._end_order:
            part.end()

    def _look_at(self, part: Part, now: float) -> None:
        track = self._tracks[part.name]
        if supervision.due(track, now):
            part.begin()
            self._tracks[part.name] = supervision.started(track, now)
            return
        if track.phase == "down":
            return
        code = part.exit_code()
        if code is not None:
            self._ended(part, code, now=now)
        elif track.phase == "starting" and part.state() is not None:
            self._tracks[part.name] = supervision.became_ready(track, now)
            self._views.say(f"{part.name}: ready")
            self._views.changed(part.name)

    def _ended(self, part: Part, code: int, *, now: float) -> None:
        track = supervision.ended(self._tracks[part.name], now, jitter=random.random())  # noqa: S311 - jitter, no secret
        self._tracks[part.name] = track
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        if supervision.hopeless(track, code):
            raise self._given_up(part, how, code=code)
        self._views.say(f"{part.name}: {how}, starting again in {track.restart_at - now:.2f} s")
        words = part.last_words()
        if words and (code > 0 or track.failures > 1):
            self._views.say("\n".join(f"{part.name}: | {line}" for line in words.splitlines()))

    def _write_ready(self) -> None:
        if any(track.phase != "ready" for track in self._tracks.values()):
            return
        states = {part.name: part.state() for part in self._parts}
        present = {name: state for name, state in states.items() if state is not None}
        if len(present) < len(states):
            return
        content = self._views.ready(present)
        if content == self._written:
            return
        for path in self._ready_files:
            write_state(path, content)
        first = self._written is None
        self._written = content
        if first:
            self._views.announced(content)

    def _given_up(self, part: Part, how: str, *, code: int = 0) -> PartFailed:
        words = part.last_words()
        shown = "\n".join(f"  | {line}" for line in words.splitlines())
        message = f"{part.name} {how}" + (f"; it said last:\n{shown}" if shown else "")
        return PartFailed(message, exit_status=code)
