"""How many invalid requests one client address may have answered in full.

Rule: only invalid requests cost a token, and verification has always run before this is asked; a valid signature is
never limited, so a stranger on the same address cannot make Stripe wait.  Memory is bounded: the client that was
silent for longest is forgotten first.  Pure: the caller brings the time.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

CLIENTS_MAX = 4_096


@dataclass(frozen=True, slots=True)
class RatePolicy:
    """``burst`` invalid requests at once, then ``per_second`` of them; both above 0."""

    per_second: float = 10.0
    burst: int = 200


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


class InvalidRequestRate:
    """One token bucket per client address."""

    def __init__(self, policy: RatePolicy, *, clients_max: int = CLIENTS_MAX) -> None:
        self._policy = policy
        self._clients_max = clients_max
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, client: str, *, now: float) -> bool:
        """Take one token; False means that this client has had its share of answers.

        Args:
            client: the peer's address.
            now: a monotonic clock in seconds.
        """
        bucket = self._buckets.get(client)
        if bucket is None:
            bucket = self._open(client, now)
        else:
            gained = max(0.0, now - bucket.filled_at) * self._policy.per_second
            bucket.tokens = min(float(self._policy.burst), bucket.tokens + gained)
            bucket.filled_at = now
            self._buckets.move_to_end(client)
        if bucket.tokens < 1.0:
            return False
        bucket.tokens -= 1.0
        return True

    def _open(self, client: str, now: float) -> _Bucket:
        if len(self._buckets) >= self._clients_max:
            self._buckets.popitem(last=False)
        bucket = _Bucket(float(self._policy.burst), now)
        self._buckets[client] = bucket
        return bucket
