"""When a service has to stop, and where it says that it is ready: signals, the parent's death, the state file.

Rule: the first signal asks for a clean stop, the second one ends the process at once; a service whose parent has died
stops by itself, so that no orphan goes on working unseen.  Plain and synchronous, shared by every service.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

import structlog

PARENT_POLL_SECONDS = 1.0
WAIT_STEP_SECONDS = 1.0
"""A signal that arrives in the instant before a wait begins does not end that wait: it is heard at the next step."""
ORPHAN_GRACE_SECONDS = 20.0
"""How long a clean stop may take after the parent's death, before the process is ended."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_EXIT_SIGNALLED = 128
_EXIT_ORPHANED = 1

_log = structlog.get_logger("onceflow.lifetime")


class Lifetime:
    """Knows whether the service should stop; a context manager that owns the signal handlers meanwhile.

    Use it in the main thread.  ``stopping`` may be read from any thread; ``wait`` belongs to one.

    Args:
        parent_pid: stop when this process is no longer our parent; None to live without one.
    """

    def __init__(self, *, parent_pid: int | None = None) -> None:
        self._parent_pid = parent_pid
        self._reason: str | None = None
        self._signals = 0
        # Put by signal handlers: SimpleQueue is reentrant; Event and Condition would deadlock with their own waiter.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._previous: dict[signal.Signals, Callable[[int, FrameType | None], Any] | int | None] = {}
        self._over = threading.Event()

    @property
    def stopping(self) -> bool:
        """True from the first request to stop on."""
        return self._reason is not None

    @property
    def reason(self) -> str | None:
        """Why the service stops: ``SIGTERM``, ``SIGINT``, ``parent_gone``, or what was given to ``stop``."""
        return self._reason

    def stop(self, reason: str) -> None:
        """Ask for a clean stop; safe in signal handlers and in every thread."""
        if self._reason is None:
            self._reason = reason
        self._wake.put(None)

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until the service should stop or the time is over; True when it should stop."""
        give_up_at = time.monotonic() + timeout_seconds
        while not self.stopping:
            remaining = give_up_at - time.monotonic()
            if remaining <= 0:
                break
            try:
                self._wake.get(timeout=min(remaining, WAIT_STEP_SECONDS))
            except queue.Empty:
                continue
        return self.stopping

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._previous[number] = signal.signal(number, self._on_signal)
        if self._parent_pid is not None:
            threading.Thread(target=self._watch_parent, name="parent-watch", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals > 1:
            # Nothing may be waited for any more, not even buffers: the sender of the second signal means it.
            os._exit(_EXIT_SIGNALLED + number)
        if self._reason is None:
            self._reason = signal.Signals(number).name
        self._wake.put(None)

    def _watch_parent(self) -> None:
        while os.getppid() == self._parent_pid:
            if self._over.wait(PARENT_POLL_SECONDS):
                return
        _log.warning("parent_gone", parent_pid=self._parent_pid)
        self.stop("parent_gone")
        if not self._over.wait(ORPHAN_GRACE_SECONDS):
            os._exit(_EXIT_ORPHANED)


def say_ready(
    state: Mapping[str, object], *, state_file: Path | None, announce: Callable[[Mapping[str, object]], None] | None
) -> None:
    """Tell whoever waits for it that the service is ready; harmless when nobody does.

    Args:
        state: ``pid``, ``url``, ``metrics_url`` as far as the service has them.
        state_file: is written, see ``write_state``.
        announce: is called after that.
    """
    if state_file is not None:
        write_state(state_file, state)
    if announce is not None:
        announce(state)


def write_state(path: Path, state: Mapping[str, object]) -> None:
    """Write the state file of a service that is ready, in one step and readable by its owner only.

    Args:
        path: the file; its folder exists.
        state: ``pid``, ``url``, ``metrics_url`` as far as the service has them.
    """
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
