"""Looks that take long, or meet more than fits: they end, and nobody takes their lease meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from onceflow_processor.log_reader import LogReader
from onceflow_processor.operations.senders import exchange
from onceflow_processor.records import Partition
from onceflow_processor.relay.lease import TTL_SECONDS_MIN, Lease
from onceflow_reconciler import stripe_lists
from onceflow_reconciler.verify.hours import HOUR_SECONDS
from onceflow_reconciler.verify.tables import Tables
from tests.reconciler.conftest import PLATFORM, ReconcilerRoad

LONGER_THAN_THE_LEASE_SECONDS = 3.0
POLL_SECONDS = 0.1


@contextmanager
def contender(road: ReconcilerRoad) -> Iterator[list[float]]:
    """Another reconciler that would take the lease as soon as it can; when it did."""
    taken: list[float] = []
    over = threading.Event()

    def contend() -> None:
        with psycopg.connect(road.database_url, autocommit=True) as connection:
            name = f"reconciler:{road.deployment}"
            lease = Lease(connection, name=name, owner="another", ttl_seconds=TTL_SECONDS_MIN, clock=time.monotonic)
            while not over.wait(POLL_SECONDS):
                held = connection.execute(
                    "SELECT FROM onceflow.lease WHERE name = %s AND owner <> 'another' AND owner <> ''", [name]
                )
                # Who is first is not the question.
                if held.fetchone() is not None and lease.acquire():
                    taken.append(time.monotonic())

    thread = threading.Thread(target=contend)
    thread.start()
    try:
        yield taken
    finally:
        over.set()
        thread.join()


def test_a_look_that_takes_longer_than_its_lease_keeps_it(
    road: ReconcilerRoad, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that is slow, and a statement that is: in both, another reconciler waits for the lease."""
    road.customers(3)
    road.stripe.advance(5)
    milliseconds = 1000 * LONGER_THAN_THE_LEASE_SECONDS
    # The first answer tells the time.
    road.stripe.faults.add("slow", match={"path": "/v1/events"}, skip=1, times=1, answer_ms=milliseconds)
    run, slept = Tables.run, []

    def slowly(self: Tables, query: str, **given: object) -> None:
        if query == "judge_markers":
            self._connection.execute("SELECT pg_sleep(%s)", [LONGER_THAN_THE_LEASE_SECONDS])
            slept.append(query)
        run(self, query, **given)

    monkeypatch.setattr(Tables, "run", slowly)
    with contender(road) as taken:
        begun_at = time.monotonic()
        assert road.once(lease_ttl_seconds=TTL_SECONDS_MIN)[PLATFORM]["brought"] == 3
        ended_at = time.monotonic()
    assert slept
    assert ended_at - begun_at > 2 * LONGER_THAN_THE_LEASE_SECONDS
    assert [at for at in taken if at < ended_at - POLL_SECONDS] == []


def test_who_looks_through_a_topic_is_asked_again_and_again_whether_he_may(road: ReconcilerRoad) -> None:
    asked = 0

    class Over(Exception):
        """The lease is lost."""

    def tick() -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise Over

    kafka = {"bootstrap.servers": road.bootstrap}
    partition = Partition(road.events, 0)
    with LogReader(kafka, group="test.reader", deadline_seconds=30, tick=tick) as reader:
        bounds = reader.bounds(partition)
        with pytest.raises(Over):
            next(reader.records(partition, bounds.low, end=bounds.high + 1))


def test_events_too_large_for_one_answer_are_read_in_smaller_pages(
    road: ReconcilerRoad, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "ANSWER_BYTES_MAX", 100_000)
    tell(road, 100, created=int(road.stripe.state()["now"]), note="x" * 2_000)
    road.stripe.advance(5)
    waits: list[float] = []
    monkeypatch.setattr(stripe_lists.StripeLists, "_rest", lambda _, seconds: waits.append(seconds))
    found = road.once()[PLATFORM]
    assert (found["listed"], found["brought"], found["waits"]) == (100, 100, None)
    # The same is not asked for again: there are only waits for the own pace.
    assert stripe_lists.RETRY_SECONDS not in waits


def test_an_hour_with_more_pages_than_are_read_at_once_is_kept_whole(
    road: ReconcilerRoad, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waited in it is looked for again, as in any other hour."""
    into_hour = int(road.stripe.state()["now"]) % HOUR_SECONDS
    hour = int(road.stripe.state()["now"]) - into_hour + HOUR_SECONDS
    road.stripe.advance(3 * HOUR_SECONDS - into_hour)
    for part in range(3):
        tell(road, 40, created=hour + part * HOUR_SECONDS // 3)
    # A page holds 100, so that the whole hour is too much and its halves are not.
    monkeypatch.setattr(stripe_lists, "PAGES_MAX", 1)
    looked: dict[str, Any] = {"first_seconds": 2 * HOUR_SECONDS + 60}
    assert road.once(**looked)[PLATFORM]["brought"] == 120
    [kept] = hours(road)
    assert kept["listed"] == 120
    assert kept["waiting"] >= 120, "nothing has read them yet"
    with road.processor():
        road.wait_for_events(120)
    with psycopg.connect(road.database_url) as connection:
        connection.execute("UPDATE onceflow.reconcile_hour SET read_at = read_at - interval '1 hour'")
    road.once(**looked)
    assert [(one["listed"], one["waiting"]) for one in hours(road)] == [(120, 0)]


def tell(road: ReconcilerRoad, count: int, *, created: int, **subject: object) -> None:
    """Have Stripe list events."""
    body = {"id": "cus_1", "object": "customer", **subject}
    common = {"type": "customer.created", "created": created, "livemode": False, "data": {"object": body}}
    road.stripe.tell_events([{**common, "id": f"evt_{created}_{number}"} for number in range(count)])


def hours(road: ReconcilerRoad) -> list[dict[str, Any]]:
    return road.rows("SELECT listed, waiting FROM onceflow.reconcile_hour WHERE listed <> 0 ORDER BY hour")
