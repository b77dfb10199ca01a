"""The breaker: when most recent events of one handler fail alike, its partition waits instead of filling the quarantine.

Rule: a bad deploy is not the fault of a thousand events, and ten bad events among a thousand are no bad deploy: ends are
told in the order of the events.  Only failures are remembered, and successes of handlers that have failed lately, so
events of healthy handlers cost nothing.  Pure: who waits and for how long is the caller's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

WINDOW_EVENTS = 20
"""How many recent events of a handler are looked at."""

OPEN_FAILURES = 16
"""So many of them must have failed alike."""


class Breaker:
    """Recent ends of the handlers that have failed lately: the kind of failure, or None for a success."""

    def __init__(self) -> None:
        self._recent: dict[str, deque[str | None]] = {}

    def failed(self, handler: str, kind: str) -> bool:
        """Note that an event of a handler failed for good; True when it must wait instead of being quarantined."""
        recent = self._recent.setdefault(handler, deque(maxlen=WINDOW_EVENTS))
        recent.append(kind)
        return recent.count(kind) >= OPEN_FAILURES

    @property
    def watched(self) -> frozenset[str]:
        """The handlers that have failed lately; only their successes need to be told."""
        return frozenset(self._recent)

    def went_well(self, handlers: Iterable[str]) -> None:
        """Note that an event went well in these handlers; one without a failure in its window is forgotten.

        Those before a handler's first failure need not be told: what opens it is the number of failures in the window.
        """
        for handler in handlers:
            recent = self._recent.get(handler)
            if recent is not None:
                recent.append(None)
                if not any(recent):
                    del self._recent[handler]
