"""Which lines of a kind are written when the same is said again and again.  Pure.

Rule: one of a kind in ten seconds says it too, and the next one tells how many were left out.
"""

from __future__ import annotations

REPEAT_SECONDS = 10.0
KINDS_MAX = 500
"""Most kinds that are remembered; texts name brokers, so their number is the cluster's to decide."""


class RepeatLimit:
    """Lets one of a kind through and counts the others.  Not safe for several threads."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, ...], tuple[float, int]] = {}

    def admit(self, kind: tuple[str, ...], *, now: float) -> int | None:
        """Return how many of this kind were left out since the last one; None to leave this one out too.

        Args:
            kind: what makes two lines alike.
            now: of a monotonic clock in seconds.
        """
        said_at, left_out = self._kinds.get(kind, (None, 0))
        if said_at is not None and now - said_at < REPEAT_SECONDS:
            self._kinds[kind] = (said_at, left_out + 1)
            return None
        # Put at the end again, so that the first one is the one not said for the longest time.
        self._kinds.pop(kind, None)
        if len(self._kinds) >= KINDS_MAX:
            del self._kinds[next(iter(self._kinds))]
        self._kinds[kind] = (now, 0)
        return left_out
