"""A processor and a relay are stopped beyond their timeouts, somebody takes over, and then the stopped one goes on.

This is the zombie: it still believes that the work is its own.  Only the fence in PostgreSQL and the relay's lease and
transaction keep its late writes out; the checker sees every write that got through.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.checker.waiting import wait_for
from tests.faults.process_state import is_stopped
from tests.load.rig import Rig

TAKE_OVER_SECONDS = 40.0
STOPPED_SECONDS = 5.0


def rows(rig: Rig, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(rig.ready.database_url) as connection:
        return connection.execute(query).fetchall()


def epochs(rig: Rig) -> dict[int, int]:
    return dict(rows(rig, "SELECT partition, epoch FROM onceflow.progress"))


def lease_token(rig: Rig) -> int:
    return int(rows(rig, "SELECT max(token) FROM onceflow.lease")[0][0])


def wait_until(condition: Callable[[], bool], what: str, seconds: float = TAKE_OVER_SECONDS) -> None:
    wait_for(condition, limit_seconds=seconds, what=what)


@pytest.mark.long
def test_processor_stopped_beyond_its_group_session(rig: Rig) -> None:
    with rig.part("process") as second, rig.load() as load:
        wait_until(lambda: len(set(owners(rig))) == 2, "both processors have partitions")
        before = epochs(rig)
        pid = rig.signal("processor", signal.SIGSTOP)
        try:
            wait_until(lambda: is_stopped(pid), "the processor is stopped", STOPPED_SECONDS)
            wait_until(lambda: len(set(owners(rig))) == 1, "the second processor has taken over everything")
            after = epochs(rig)
            assert sum(after[partition] > before[partition] for partition in before) >= 1
            load.wait_for_answers(100)
        finally:
            rig.signal("processor", signal.SIGCONT)
        load.wait_for_answers(100)
        wait_until(lambda: len(set(owners(rig))) == 2, "the continued processor has partitions again")
        assert second.process is not None
        assert second.process.poll() is None
    verdict = rig.verdict()
    assert verdict.violations == (), verdict


def owners(rig: Rig) -> list[str]:
    return [row[0] for row in rows(rig, "SELECT owner FROM onceflow.progress")]


def test_relay_stopped_beyond_its_lease(rig: Rig) -> None:
    with rig.part("relay") as second, rig.load() as load:
        token = lease_token(rig)
        pid = rig.signal("relay", signal.SIGSTOP)
        try:
            wait_until(lambda: is_stopped(pid), "the relay is stopped", STOPPED_SECONDS)
            wait_until(lambda: lease_token(rig) > token, "the second relay has taken the lease")
            load.wait_for_answers(150)
            wait_until(lambda: published(rig) > 0, "the second relay publishes")
        finally:
            rig.signal("relay", signal.SIGCONT)
        load.wait_for_answers(150)
        assert second.process is not None
        assert second.process.poll() is None
    verdict = rig.verdict()
    assert verdict.violations == (), verdict


def published(rig: Rig) -> int:
    return int(rows(rig, "SELECT sum(published_seq) FROM onceflow.lane")[0][0])
