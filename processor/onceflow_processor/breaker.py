"""The breaker: when most recent events of one handler fail alike, its partition waits instead of filling the quarantine.

Rule: a bad deploy is not the fault of a thousand events, and ten bad events among a thousand are no bad deploy: ends are
told in the order of the events.  Only failures are remembered, and successes of handlers that have failed lately, so
events of healthy handlers cost nothing.  An event that is bad itself must not wait for a success that it keeps from
coming: from time to time the events behind it are rehearsed, and one that goes well proves the handler.  Pure: who
waits, and what is rehearsed, is the caller's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from onceflow_processor.records import Partition

WINDOW_EVENTS = 20
"""How many recent events of a handler are looked at."""

OPEN_FAILURES = 16
"""So many of them must have failed alike."""

REHEARSAL_SECONDS = 60.0
"""A partition waits so long before the events behind its first one are rehearsed, and between two rehearsals: a deploy
that fails for most events, and not for all, costs one event per partition in that time."""


class Breaker:
    """Recent ends of the handlers that have failed lately: the kind of failure, or None for a success."""

    def __init__(self) -> None:
        self._recent: dict[str, deque[str | None]] = {}
        self._rehearse_at: dict[tuple[str, Partition], float] = {}

    def failed(self, handler: str, kind: str) -> bool:
        """Note that an event of a handler failed for good; True when it must wait instead of being quarantined."""
        recent = self._recent.setdefault(handler, deque(maxlen=WINDOW_EVENTS))
        recent.append(kind)
        return recent.count(kind) >= OPEN_FAILURES

    def rehearsal_due(self, handler: str, partition: Partition, *, now: float) -> bool:
        """Say whether a partition that waits for a handler shall rehearse the events behind its first one.

        Args:
            handler: whose event must wait.
            partition: that waits.
            now: monotonic, in seconds.
        """
        due = self._rehearse_at.setdefault((handler, partition), now + REHEARSAL_SECONDS)
        if now < due:
            return False
        self._rehearse_at[handler, partition] = now + REHEARSAL_SECONDS
        return True

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
                    self._forget(handler)

    def _forget(self, handler: str) -> None:
        del self._recent[handler]
        for place in [place for place in self._rehearse_at if place[0] == handler]:
            del self._rehearse_at[place]
