"""How fast a replay may run events: so many in a second, beside live traffic.

Rule: in no span of time run more than the rate allows and one chunk beyond it.  Pure: the time is an argument.
"""

from __future__ import annotations

from typing import Final

CHUNK_SECONDS: Final = 1.0
"""A chunk is at most what the rate allows in so long, so that the rate is even."""


class Pace:
    """Tells how long to wait before the next chunk.

    Args:
        rate: events in a second, above 0.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._due = float("-inf")
        self.chunk_max = max(1, int(rate * CHUNK_SECONDS))

    def wait_seconds(self, now: float) -> float:
        """Return how long to wait before a chunk may run."""
        return max(0.0, self._due - now)

    def ran(self, count: int, *, now: float) -> None:
        """So many events run from now on."""
        self._due = max(self._due, now) + count / self._rate
