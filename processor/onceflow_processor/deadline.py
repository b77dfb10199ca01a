"""The deadline of a handler.

Rule: a handler that never returns takes only its own event.  The alarm is a signal, because only a signal also
interrupts a handler that waits in a system call; so the worker runs in the main thread, and elsewhere (as in a test)
there is no deadline.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType


class HandlerDeadline(BaseException):
    """Raised inside a handler that ran too long.  Not an Exception, so that no ``except Exception`` swallows it."""


class Deadline:
    """Raises ``HandlerDeadline`` in the main thread when an armed span is over."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._armed = False
        self._usable = threading.current_thread() is threading.main_thread()
        if self._usable:
            signal.signal(signal.SIGALRM, self._ring)

    def arm(self) -> None:
        """Begin the span of one handler anew."""
        if self._usable:
            self._armed = True
            signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def disarm(self) -> None:
        """End the span; without one it costs nothing."""
        if self._usable and self._armed:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _ring(self, _number: int, _frame: FrameType | None) -> None:
        # A signal that was already on its way when the span ended must not hit what runs now.
        if self._armed:
            self._armed = False
            raise HandlerDeadline
