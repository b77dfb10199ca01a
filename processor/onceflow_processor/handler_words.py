"""What a handler may raise to say itself what happens to its event.

Rule: it is the event that waits, never the partition; everything the handlers of the event did is rolled back.
"""

from __future__ import annotations

import math

RETRY_SECONDS_MAX = 30 * 86_400.0
"""The longest wait that may be asked for: 30 days, as long as Stripe itself can tell about an event."""


class RetryIn(Exception):
    """Raised by a handler: try this event again in so many seconds; the events of its key wait behind it.

    Args:
        seconds: 0 to 30 days.
        reason: for people, shown by ``onceflow parked``; without personal data.
    """

    def __init__(self, seconds: float, reason: str = "") -> None:
        if isinstance(seconds, bool) or not math.isfinite(seconds) or not 0 <= seconds <= RETRY_SECONDS_MAX:
            message = f"RetryIn takes 0 to {RETRY_SECONDS_MAX:.0f} seconds, not {seconds!r}"
            raise ValueError(message)
        super().__init__(reason or f"the handler asks for a retry in {seconds:g} s")
        self.seconds = float(seconds)
        self.reason = reason


class Quarantine(Exception):
    """Raised by a handler: this event needs a person; the events of its key wait until that person has decided.

    Args:
        reason: for people, shown by ``onceflow quarantine``; without personal data.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
