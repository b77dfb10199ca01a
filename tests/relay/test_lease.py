"""Who holds the lease is decided by the database; how long we believe it, by our own clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from onceflow_processor.relay.lane_store import connect
from onceflow_processor.relay.lease import Lease, lease_name
from onceflow_schemas.failure import LeaseLost, Unavailable


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def contender(database_url: str, owner: str, *, clock: Clock, ttl_seconds: float = 10.0) -> Iterator[Lease]:
    connection = connect(database_url, role="onceflow-relay", prepared=True)
    try:
        yield Lease(connection, name=lease_name("t"), owner=owner, ttl_seconds=ttl_seconds, clock=clock)
    finally:
        connection.close()


def expire(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("UPDATE onceflow.lease SET lease_until = clock_timestamp() - interval '1 second'")


def test_only_one_holds_it_and_each_term_has_a_higher_token(fresh_database: str) -> None:
    clock = Clock()
    with contender(fresh_database, "a", clock=clock) as a, contender(fresh_database, "b", clock=clock) as b:
        assert a.acquire()
        assert a.token == 1
        assert not b.acquire()
        assert not a.acquire(), "a term is ended before the next one begins"
        a.release()
        assert b.acquire()
        assert b.token == 2
        b.release()
        assert a.acquire()
        assert a.token == 3


def test_lease_of_a_clock_that_jumped_is_nobodys(fresh_database: str) -> None:
    """The database's clock was 25 hours ahead for a while, and then the holder died."""
    clock = Clock()
    with contender(fresh_database, "a", clock=clock) as a, contender(fresh_database, "b", clock=clock) as b:
        assert a.acquire()
        move(fresh_database, "299 seconds")
        assert not b.acquire(), "somebody may have been granted so much"
        move(fresh_database, "25 hours")
        assert b.acquire()
        assert b.token == 2


def move(database_url: str, ahead: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("UPDATE onceflow.lease SET lease_until = clock_timestamp() + %s::interval", [ahead])


def test_an_expired_lease_is_taken_and_its_former_holder_notices(fresh_database: str) -> None:
    clock = Clock()
    with contender(fresh_database, "a", clock=clock) as a, contender(fresh_database, "b", clock=clock) as b:
        assert a.acquire()
        expire(fresh_database)
        assert b.acquire()
        clock.now += 5
        with pytest.raises(LeaseLost):
            a.keep()
        with pytest.raises(LeaseLost):
            _ = a.token
        a.release()
        assert not a.acquire(), "giving up what was lost takes nothing from the new holder"


def test_an_expired_lease_that_nobody_took_is_still_ours(fresh_database: str) -> None:
    clock = Clock()
    with contender(fresh_database, "a", clock=clock) as a:
        assert a.acquire()
        expire(fresh_database)
        clock.now += 30
        a.keep()
        assert a.token == 1
        a.check()


def test_trust_begins_at_the_attempt_and_ends_before_the_lease_does(fresh_database: str) -> None:
    clock = Clock()

    class Slow(Clock):
        """Each look at the clock finds it 3 s later: the answer of the database took that long."""

        def __call__(self) -> float:
            self.now += 3
            return self.now

    with contender(fresh_database, "a", clock=clock) as a:
        assert a.acquire()
        assert a.remaining_seconds() == 8.0
        clock.now += 7.9
        a.check()
        clock.now += 0.1
        with pytest.raises(LeaseLost):
            a.check()
    expire(fresh_database)
    with contender(fresh_database, "b", clock=Slow()) as b:
        assert b.acquire()
        assert b.remaining_seconds() == 5.0


def test_it_is_renewed_only_when_half_of_the_time_is_over(fresh_database: str) -> None:
    clock = Clock()
    with contender(fresh_database, "a", clock=clock) as a:
        assert a.acquire()
        expire(fresh_database)
        clock.now += 3.9
        a.keep()
        assert a.remaining_seconds() == pytest.approx(4.1)
        clock.now += 0.2
        a.keep()
        assert a.remaining_seconds() == 8.0


def test_a_lost_connection_is_a_dependency_away(fresh_database: str) -> None:
    with contender(fresh_database, "a", clock=Clock()) as a:
        with psycopg.connect(fresh_database, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        with pytest.raises(Unavailable):
            a.acquire()
