"""Rate limits of one account: token buckets per account and per endpoint, and how many requests are in flight.

Rule: a limiter stands before the idempotency keys, so what it refuses never ran and is never kept.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from onceflow_simulator.knobs import Knobs

HOUR_SECONDS = 3600.0


@dataclass
class Bucket:
    """Tokens that come back at a steady rate.

    Args:
        tokens: how many there are.
        at: when they were counted, in seconds of a monotonic clock.
    """

    tokens: float
    at: float

    def take(self, *, now: float, per_second: float, size: float) -> bool:
        """Take a token; False when there is none."""
        self.tokens = min(self.tokens + (now - self.at) * per_second, size)
        self.at = now
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True


@dataclass
class Limits:
    """What one account has used."""

    buckets: dict[str, Bucket] = field(default_factory=dict)
    in_flight: Counter[str] = field(default_factory=Counter)
    updates: dict[str, deque[float]] = field(default_factory=dict)

    def refusal(self, endpoint: str, knobs: Knobs, *, now: float) -> str | None:
        """Why a request is refused, in the words of the header ``Stripe-Rate-Limited-Reason``; None lets it pass."""
        if knobs.account_concurrency is not None and self.in_flight[""] >= knobs.account_concurrency:
            return "global-concurrency"
        if knobs.endpoint_concurrency is not None and self.in_flight[endpoint] >= knobs.endpoint_concurrency:
            return "endpoint-concurrency"
        if not self._take("", knobs.account_per_second, now=now, burst_seconds=knobs.burst_seconds):
            return "global-rate"
        per_second = knobs.search_per_second if endpoint.endswith("/search") else knobs.endpoint_per_second
        if not self._take(endpoint, per_second, now=now, burst_seconds=knobs.burst_seconds):
            return "endpoint-rate"
        return None

    def object_refusal(self, id: str, knobs: Knobs, *, now: float) -> str | None:
        """Why an update of one object is refused: there were too many within an hour of the simulator's clock."""
        if knobs.updates_per_hour is None:
            return None
        times = self.updates.setdefault(id, deque())
        while times and times[0] <= now - HOUR_SECONDS:
            times.popleft()
        if len(times) >= knobs.updates_per_hour:
            return "resource-specific"
        times.append(now)
        return None

    def enter(self, endpoint: str) -> None:
        """A request begins."""
        self.in_flight[""] += 1
        self.in_flight[endpoint] += 1

    def leave(self, endpoint: str) -> None:
        """A request has ended."""
        self.in_flight[""] -= 1
        self.in_flight[endpoint] -= 1

    def _take(self, name: str, per_second: float | None, *, now: float, burst_seconds: float) -> bool:
        if per_second is None:
            self.buckets.pop(name, None)
            return True
        size = max(per_second * burst_seconds, 1.0)
        bucket = self.buckets.setdefault(name, Bucket(tokens=size, at=now))
        return bucket.take(now=now, per_second=per_second, size=size)
