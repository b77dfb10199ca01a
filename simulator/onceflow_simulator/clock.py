"""The simulator's clock: it follows the real one, stands still, or is moved by a test.

Rule: whatever Stripe would date (keys, events, retries, refunds) reads this clock; only waiting inside one request, rate
limits and the signatures of webhooks live in real time, because a client's own time-outs and tolerances do.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

Mode = Literal["real", "fixed"]


class Clock:
    """Seconds since 1970, as Stripe sees them.

    Args:
        start: where the clock stands (mode "fixed"); None follows the real clock.
    """

    def __init__(self, *, start: float | None = None) -> None:
        self._start = start
        self._pretended: float | None = None
        self.reset()

    def reset(self) -> None:
        """As it was in the beginning."""
        self._fixed = self._start
        self._offset = 0.0
        self.advanced_seconds = 0.0
        """By how much it was moved ahead, all moves together: so much older than their senders think are keys at most."""

    @property
    def mode(self) -> Mode:
        """Whether time passes by itself."""
        return "real" if self._fixed is None else "fixed"

    def now(self) -> float:
        """The time, with fractions of a second."""
        if self._pretended is not None:
            return self._pretended
        return self._fixed if self._fixed is not None else time.time() + self._offset

    def seconds(self) -> int:
        """The time as Stripe writes it: whole seconds."""
        return int(self.now())

    def advance(self, seconds: float) -> None:
        """Move the clock by so many seconds; a negative number is a clock that jumps back."""
        self.advanced_seconds += max(seconds, 0.0)
        if self._fixed is None:
            self._offset += seconds
        else:
            self._fixed += seconds

    def set(self, at: float) -> None:
        """Put the clock to a time; it goes on from there, or stands still, as before."""
        self.advance(at - self.now())

    def choose(self, mode: Mode) -> None:
        """Let time pass by itself from now on, or stand still."""
        now = self.now()
        self._fixed = now if mode == "fixed" else None
        self._offset = now - time.time()

    @contextmanager
    def pretend(self, at: float) -> Iterator[None]:
        """Show a time while something runs that was due then, so that it is dated as it would have been."""
        before, self._pretended = self._pretended, at
        try:
            yield
        finally:
            self._pretended = before
