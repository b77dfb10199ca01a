"""The times by which operations are decided.

Rule: the safe window plus the longest call ends before Stripe may forget a key (24 hours).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the decisions; all but the last four are settings.

    Attributes:
        safe_window: how long after ``window_from`` a key may be sent again.
        absence_wait: how long after the last possible send a look-up must be read for its absence to count.
        action_wait: how long a required action of a customer who is there may take.
        action_wait_off_session: the same when nobody is there.
        lookup_fresh: how old a look-up may be when a send relies on it.
        retry_first, retry_most: pause after a try without a conclusion, doubling.
        poll_first, poll_most: pause between look-ups while the other side decides, doubling.
    """

    safe_window: timedelta = timedelta(hours=20)
    absence_wait: timedelta = timedelta(minutes=15)
    action_wait: timedelta = timedelta(hours=24)
    action_wait_off_session: timedelta = timedelta(hours=1)
    lookup_fresh: timedelta = timedelta(minutes=2)
    retry_first: timedelta = timedelta(seconds=1)
    retry_most: timedelta = timedelta(minutes=15)
    poll_first: timedelta = timedelta(seconds=30)
    poll_most: timedelta = timedelta(hours=1)


LIMITS = Limits()

_DOUBLINGS_MAX = 20


def pause(first: timedelta, most: timedelta, *, tries: int, operation_id: UUID) -> timedelta:
    """Return how long to wait after the ``tries``-th try without a conclusion: doubling, capped, spread by the id.

    The spread (three quarters to one and a quarter) is a function of id and try, so that it needs no chance and many
    operations that failed together do not come back together.
    """
    doubled: timedelta = min(most, first * 2 ** min(max(tries - 1, 0), _DOUBLINGS_MAX))
    spread = (operation_id.int >> (tries % 14) * 8) % 256
    return doubled * (0.75 + spread / 512)
