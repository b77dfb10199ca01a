"""Which stretches of Stripe's event list are read next.

Rule: a stretch ends before now, since events become visible late, and begins before the cursor, since some become visible
later still.  Times are whole seconds of Stripe's clock, as ``created`` has them.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

REACH_SECONDS: Final = 30 * 24 * 3600
"""Stripe lists events of the last 30 days only (https://docs.stripe.com/api/events)."""

REACH_MARGIN_SECONDS: Final = 3600
"""What is so close to the end of the list may leave it while it is read."""


AHEAD_SLICES_MAX: Final = 96
"""Stretches of one look: after an outage of weeks they are longer, since each costs a read though nothing may be in it."""
AGAIN_SLICES_MAX: Final = 48
"""Stretches that are looked at once more in one look: what is new waits no longer than for these."""


@dataclass(frozen=True, slots=True, order=True)
class Slice:
    """Events created from ``since`` on and before ``until``, in unix seconds."""

    since: int
    until: int

    def halves(self) -> tuple[Slice, Slice] | None:
        """Return the later and the earlier half; None for a second, which cannot be cut."""
        middle = (self.since + self.until) // 2
        return None if middle == self.since else (Slice(middle, self.until), Slice(self.since, middle))


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRules:
    """How the list is cut.

    Attributes:
        overlap_seconds: read again before the cursor.
        grace_seconds: events younger than this are not judged: their webhook may be on its way.
        slice_seconds_max: the longest stretch that is read before the cursor moves, unless there are very many of them.
    """

    overlap_seconds: int = 600
    grace_seconds: int = 120
    slice_seconds_max: int = 3600


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is to be read, oldest first, and what no list shows any more."""

    slices: tuple[Slice, ...]
    out_of_reach: Slice | None


def ahead(done_until: int, *, now: int, rules: SliceRules, is_endless: bool = False) -> Ahead:
    """Return the stretches between a cursor and now.

    Args:
        done_until: events before this were handed over.
        now: by Stripe's clock.
        rules: how the list is cut.
        is_endless: the list shows everything that there ever was, as those of objects do.
    """
    first_listed = 0 if is_endless else now - REACH_SECONDS + REACH_MARGIN_SECONDS
    until = now - rules.grace_seconds
    since = done_until - rules.overlap_seconds
    lost = Slice(done_until, first_listed) if done_until < first_listed else None
    since = max(since, first_listed)
    slices: list[Slice] = []
    longest = max(rules.slice_seconds_max, -(-(until - since) // AHEAD_SLICES_MAX))
    while since < until:
        end = min(since + longest + rules.overlap_seconds * (not slices), until)
        slices.append(Slice(since, end))
        since = end
    return Ahead(tuple(slices), lost)


def again(since: int, until: int, *, now: int, rules: SliceRules) -> tuple[Slice, ...]:
    """Return the stretches, oldest first, of what was handed over before and is looked at once more; at most so many in one go.

    Args:
        since, until: the whole time, in unix seconds.
        now: by Stripe's clock.
        rules: how the list is cut.
    """
    first = max(since, now - REACH_SECONDS + REACH_MARGIN_SECONDS)
    begins = range(first, until, rules.slice_seconds_max)[:AGAIN_SLICES_MAX]
    return tuple(Slice(begin, min(begin + rules.slice_seconds_max, until)) for begin in begins)
