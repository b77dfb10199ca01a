"""The lease: which relay is the active one.

Rule: the database's clock decides who holds the lease, and each acquisition raises the token, so that every write of a
former term is refused.  The holder trusts itself for a shorter time than the database grants:

    attempt starts        answer arrives              trust ends       lease ends (database)
    |---------------------|---------------------------|----------------|
    `- the window is counted from here, on our monotonic clock: a slow answer makes it shorter, never longer

Losing the lease is no danger for the topic (Kafka fences the former producer) nor for the tables (the token does); the
lease only keeps two relays from fencing each other in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import psycopg

from onceflow_processor.relay.lane_store import database_failures
from onceflow_schemas.failure import LeaseLost
from onceflow_schemas.sql import queries

TTL_SECONDS_MIN: Final = 2.0
TTL_SECONDS_MAX: Final = 300.0
"""No lease is granted for longer; one that ends later was written by a clock that has jumped."""
TRUSTED_SHARE: Final = 0.8
"""Share of the lease's time that the holder trusts; the rest covers the clocks' difference in speed."""
RENEW_SHARE: Final = 0.5
"""The lease is renewed when less than this share of the trusted time is left."""

_SQL = queries("relay")


def lease_name(outcome_topic: str) -> str:
    """Return the name of the lease: one active relay per outcome topic."""
    return f"relay:{outcome_topic}"


class Lease:
    """One contender for a lease, over an autocommit connection that belongs to the calling thread.

    Args:
        connection: where the lease is kept.
        name: of the lease.
        owner: who we are, for people.
        ttl_seconds: how long the database grants it without a renewal.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        *,
        name: str,
        owner: str,
        ttl_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        assert ttl_seconds >= TTL_SECONDS_MIN, "a shorter lease would be lost at every hiccup"
        assert ttl_seconds <= TTL_SECONDS_MAX, "a longer lease would be taken for one of a clock that has jumped"
        self._connection = connection
        self.owner = owner
        self._given = {"name": name, "owner": owner, "ttl_seconds": ttl_seconds, "ttl_seconds_max": TTL_SECONDS_MAX}
        self._window_seconds = ttl_seconds * TRUSTED_SHARE
        self._clock = clock
        self._token: int | None = None
        self._trusted_until = 0.0

    @property
    def token(self) -> int:
        """The fencing token of this term.

        Raises:
            LeaseLost: we hold no lease.
        """
        if self._token is None:
            raise LeaseLost("fenced", "this relay holds no lease")
        return self._token

    def acquire(self) -> bool:
        """Try once to become the holder; True begins a new term with a higher token.

        Raises:
            Unavailable: the database is away.
        """
        started = self._clock()
        row = self._run("lease_acquire", {})
        if row is None:
            return False
        self._token, self._trusted_until = int(row[0]), started + self._window_seconds
        return True

    def keep(self) -> None:
        """Renew when it is time; returns while the lease may be trusted.

        Raises:
            LeaseLost: somebody else has it.
            Unavailable: the database is away.
        """
        if self.remaining_seconds() > self._window_seconds * RENEW_SHARE:
            return
        started = self._clock()
        if self._run("lease_renew", {"token": self.token}) is None:
            self._token = None
            raise LeaseLost("fenced", "another relay took the lease")
        self._trusted_until = started + self._window_seconds

    def remaining_seconds(self) -> float:
        """Return how long the lease may still be trusted; negative when it may not."""
        return self._trusted_until - self._clock() if self._token is not None else -1.0

    def check(self) -> None:
        """Ask without the database whether we may still act.

        Raises:
            LeaseLost: the trusted time is over.
        """
        if self.remaining_seconds() <= 0:
            raise LeaseLost("fenced", "the lease was not renewed in time")

    def release(self) -> None:
        """Give the lease up for others; harmless when it is not ours.

        Raises:
            Unavailable: the database is away; the lease ends by itself.
        """
        if self._token is None:
            return
        token, self._token = self._token, None
        with database_failures():
            self._connection.execute(_SQL["lease_release"], {**self._given, "token": token})

    def _run(self, name: str, extra: dict[str, object]) -> tuple[Any, ...] | None:
        with database_failures():
            return self._connection.execute(_SQL[name], {**self._given, **extra}).fetchone()
