"""Which objects an earlier proof has compared with their operations, and from when on they are listed again.

Rule: nothing is taken from a proof but what cannot have changed without changing the operations of an hour: where those differ, all that
was made since is listed.  Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from onceflow_reconciler.slices import Slice
from onceflow_reconciler.verify.hours import LATE_SECONDS, HourSum

CLOCKS_SECONDS: Final = 300
"""So far the database's clock may be from Stripe's."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Objects made in a stretch were all listed, and compared with operations that were as ``hours`` say, by when they were requested."""

    stretch: Slice
    hours: Mapping[int, HourSum]

    @classmethod
    def before(cls, former: Mapping[str, Any] | None, account: str) -> Self | None:
        """Return what an earlier proof says of an account; None where it says nothing."""
        said = {} if former is None else former.get("objects", {})
        if account not in said:
            return None
        one = said[account]
        hours = {int(hour): HourSum(each["operations"], each["hash"]) for hour, each in one["hours"].items()}
        return cls(Slice(one["since"], one["until"]), hours)

    def as_json(self) -> dict[str, Any]:
        """Return it as a proof holds it."""
        hours = {str(hour): {"operations": one.events, "hash": one.id_hash} for hour, one in sorted(self.hours.items())}
        return {"since": self.stretch.since, "until": self.stretch.until, "hours": hours}


def is_of_use(window: Slice, before: Compared | None) -> bool:
    """Tell whether a window goes on from what was compared before."""
    return (
        before is not None
        and before.stretch.since <= window.since <= before.stretch.until
        and before.stretch.until <= window.until
    )


def listed_since(window: Slice, before: Compared | None, hours: Mapping[int, HourSum], *, hours_since: int) -> int:
    """Return from when on objects of a window are listed.

    Args:
        window: of the question.
        before: what was compared before.
        hours: the operations of now.
        hours_since: ``hours`` are not known before it.
    """
    if before is None or not is_of_use(window, before):
        return window.since
    differing = [
        hour for hour in {*before.hours, *hours} if hours_since <= hour and before.hours.get(hour) != hours.get(hour)
    ]
    # What was made by somebody else may take effect some time after it was made.
    return max(window.since, min([before.stretch.until - LATE_SECONDS, *(hour - CLOCKS_SECONDS for hour in differing)]))


def compared(window: Slice, before: Compared | None, hours: Mapping[int, HourSum]) -> Compared | None:
    """Return what a proof may say after a whole window was compared; None where an earlier one says more."""
    if before is None or (window.since <= before.stretch.since and before.stretch.until <= window.until):
        return Compared(window, hours)
    if is_of_use(window, before):
        # What lies before this window is as it was: its operations were asked for as well.
        return Compared(Slice(before.stretch.since, window.until), {**before.hours, **hours})
    return None
