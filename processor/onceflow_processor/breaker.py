"""The breaker: when most recent events of one handler fail alike, its partition waits instead of filling the quarantine.

Rule: a bad deploy is not the fault of a thousand events.  Only failures are remembered, and successes of handlers that
have failed lately, so events of healthy handlers cost nothing.  Pure: who waits and for how long is the caller's.
"""

from __future__ import annotations

from collections import deque

WINDOW_EVENTS = 20
"""How many recent events of a handler are looked at."""

OPEN_FAILURES = 16
"""So many of them must have failed alike."""

SUCCESSES_COUNTED_MAX = WINDOW_EVENTS


class Breaker:
    """Recent ends of the handlers that have failed lately: the kind of failure, or None for a success."""

    def __init__(self) -> None:
        self._recent: dict[str, deque[str | None]] = {}

    def failed(self, handler: str, kind: str) -> bool:
        """Note that an event of a handler failed for good; True when it must wait instead of being quarantined."""
        recent = self._recent.setdefault(handler, deque(maxlen=WINDOW_EVENTS))
        recent.append(kind)
        return sum(end == kind for end in recent) >= OPEN_FAILURES

    def tracked(self) -> frozenset[str]:
        """Return the handlers that have failed lately; only their successes need to be noted."""
        return frozenset(self._recent)

    def succeeded(self, handler: str, times: int) -> None:
        """Note successes of a handler; one without a failure in its window is forgotten."""
        recent = self._recent.get(handler)
        if recent is None:
            return
        recent.extend([None] * min(times, SUCCESSES_COUNTED_MAX))
        if not any(recent):
            del self._recent[handler]
