"""An event takes effect once, however late it comes again: markers, horizon and what is deleted, played together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from onceflow import Event, Handlers, Tx
from onceflow_processor.admission import Item, admit
from onceflow_processor.known import Known
from onceflow_processor.records import Partition, Record
from onceflow_processor.retention.store import read_known_from
from tests.processor.conftest import Bench, bench, event_body, record  # noqa: F401 - the fixture
from tests.processor.inputs import rules
from tests.processor.inputs.foreign_records import WRAP
from tests.processor.inputs.rules import TOPIC, given, rules_of
from tests.retention.ledger import Ledger, utc_now

MakeBench = Callable[[Handlers], Bench]
handlers = Handlers()


@handlers.on("invoice.paid")
def paid(event: Event, tx: Tx) -> None:
    tx.execute("INSERT INTO public.ran (event_id) VALUES (%s)", [event.id])


BODY = event_body("evt_twice", "invoice.paid", {"id": "in_1", "object": "invoice"})


@pytest.fixture
def road(bench: MakeBench) -> Bench:  # noqa: F811
    made = bench(handlers)
    ledger = Ledger(made.url)
    ledger.sql("CREATE TABLE public.ran (event_id text)")
    ledger.hold_lease()
    return made


def days_pass(road: Bench, days: int) -> None:
    """What was written becomes older; records keep their signed times, which the tests choose themselves."""
    with psycopg.connect(road.url, autocommit=True) as connection:
        connection.execute(
            "UPDATE onceflow.inbox SET received_at = received_at - make_interval(days => %(days)s),"
            " processed_at = processed_at - make_interval(days => %(days)s)",
            {"days": days},
        )


def ran(road: Bench) -> list[str]:
    return [row["event_id"] for row in road.rows("SELECT event_id FROM public.ran")]


def rerun(road: Bench, offset: int, *, received_days_ago: int) -> None:
    """The record of a second receipt is read, by a process that remembers nothing of the first."""
    road.known = Known()
    road.run([record(BODY, offset, received_at=utc_now() - timedelta(days=received_days_ago))])


BUS = given("stripe-json", "stripe-signature")


def of_the_bus(body: bytes, offset: int) -> Record:
    """The event as a bus brings it, which says nothing of a receipt: the time that counts is that of its creation."""
    value, headers = WRAP["stripe-json"](body)
    return replace(rules.record(value, headers), partition=Partition(TOPIC, 1), offset=offset)


def created(*, days_ago: float, now: datetime | None = None) -> bytes:
    """The event, created then."""
    at = int(((now or utc_now()) - timedelta(days=days_ago)).timestamp())
    return event_body("evt_twice", "invoice.paid", {"id": "in_1", "object": "invoice"}, created=at)


def run_long_ago(road: Bench, made: Record, *, days: int, keep_days: int) -> None:
    """Run a record as if it were so many days ago, then sweep, and forget what was remembered."""
    road.rules = rules_of(BUS, horizon=timedelta(days=365))
    road.run([made])
    road.change("UPDATE onceflow.inbox SET processed_at = processed_at - make_interval(days => %s)", days)
    Ledger(road.url).sweep_markers(keep_days=keep_days)
    road.known, road.rules = Known(), rules_of(BUS)


@pytest.mark.parametrize(("keep_days", "times"), [(42, 2), (72, 1)])
def test_the_longer_of_two_times_is_not_enough_the_sum_is(road: Bench, keep_days: int, times: int) -> None:
    """Received on day 0, sent again by Stripe on day 29, that record read on day 60 from a topic that keeps 35 days.

    With 35 + 7 = 42 days the marker is gone and the event takes effect again; with 35 + 30 + 7 = 72 it does not.
    """
    road.run([record(BODY, 0)])
    days_pass(road, 60)
    Ledger(road.url).sweep_markers(keep_days=keep_days)
    rerun(road, 1, received_days_ago=31)
    assert ran(road) == ["evt_twice"] * times


@pytest.mark.parametrize(("keep_days", "code"), [(42, "too_old"), (72, None)])
def test_on_a_bus_an_event_that_is_sent_again_is_no_younger(road: Bench, keep_days: int, code: str | None) -> None:
    """Sent again on day 29 and read on day 60 it is 60 days old there: refused where its marker is gone."""
    body = created(days_ago=60)
    run_long_ago(road, of_the_bus(body, 0), days=60, keep_days=keep_days)
    road.run([of_the_bus(body, 1)])
    assert road.quarantine().get(1) == code
    assert ran(road) == ["evt_twice"]


@pytest.mark.parametrize(("keep_days", "times"), [(42, 2), (72, 1)])
def test_on_a_bus_first_and_sent_again_by_the_bridge(road: Bench, keep_days: int, times: int) -> None:
    """The marker has the time of creation; the bridge's record of day 29 is let in until day 64, so the sum is needed."""
    body = created(days_ago=60)
    run_long_ago(road, of_the_bus(body, 0), days=60, keep_days=keep_days)
    road.run([record(body, 0, received_at=utc_now() - timedelta(days=31))])
    assert road.quarantine() == {}
    assert ran(road) == ["evt_twice"] * times


@pytest.mark.parametrize(("keep_days", "days", "code"), [(42, 34, None), (42, 60, "too_old"), (72, 60, None)])
def test_by_the_bridge_first_and_later_on_a_bus(road: Bench, keep_days: int, days: int, code: str | None) -> None:
    """The bus lets it in for 35 days from its creation, and the bridge received it no earlier than that."""
    body, received_at = created(days_ago=days), utc_now() - timedelta(days=days)
    run_long_ago(road, record(body, 0, received_at=received_at), days=days, keep_days=keep_days)
    road.run([of_the_bus(body, 1)])
    assert road.quarantine().get(1) == code
    assert ran(road) == ["evt_twice"]


def test_a_record_from_behind_the_horizon_is_refused(road: Bench) -> None:
    road.run([record(BODY, 0)])
    days_pass(road, 80)
    assert Ledger(road.url).sweep_markers() == 1
    rerun(road, 1, received_days_ago=80)
    assert road.quarantine() == {1: "too_old"}
    assert ran(road) == ["evt_twice"]


def admitted(made: Record, *, known_from: datetime | None, horizon_days: int, now: datetime) -> Item:
    both = replace(rules_of(BUS), horizon=timedelta(days=horizon_days), known_from=known_from)
    return admit(made, rules=both, now=now)


@pytest.mark.parametrize("trust", ["attested", "stripe-signature"])
def test_a_horizon_that_is_raised_later_does_not_reach_what_is_deleted(road: Bench, trust: str) -> None:
    """Markers were deleted up to 72 days ago; who was received 30 days after that may be the second record of one of them."""
    Ledger(road.url).sweep_markers(keep_days=72)
    with psycopg.connect(road.url) as connection:
        known_from = read_known_from(connection)
    assert known_from is not None
    now = utc_now()
    codes: dict[float, str | None] = {}
    for days in (80.0, 72.0, 42.5, 41.5, 1.0):
        received = now - timedelta(days=days)
        attested = trust == "attested"
        made = record(BODY, 0, received_at=received) if attested else of_the_bus(created(days_ago=days, now=now), 0)
        fault = admitted(made, known_from=known_from, horizon_days=365, now=now).fault
        codes[days] = None if fault is None else fault.code
    assert codes == {80.0: "too_old", 72.0: "too_old", 42.5: "too_old", 41.5: None, 1.0: None}


def test_a_late_clock_lets_nothing_in_that_the_database_has_forgotten(road: Bench) -> None:
    """This host's clock is 100 days late: by its own time the record is young."""
    Ledger(road.url).sweep_markers(keep_days=72)
    with psycopg.connect(road.url) as connection:
        known_from = read_known_from(connection)
    made = record(BODY, 0, received_at=utc_now() - timedelta(days=110))
    late = utc_now() - timedelta(days=100)
    fault = admitted(made, known_from=known_from, horizon_days=35, now=late).fault
    assert fault is not None
    assert fault.code == "too_old"
    assert admitted(made, known_from=None, horizon_days=35, now=late).fault is None


def test_a_database_that_was_put_back_has_its_book_with_its_markers(road: Bench) -> None:
    """A copy from before a sweep has all markers, and says that none are gone; the next sweep finds them again."""
    ledger = Ledger(road.url)
    ledger.add_markers(50, days=80)
    with psycopg.connect(road.url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA backup")
        for table in ("inbox", "retention"):
            connection.execute(f"CREATE TABLE backup.{table} AS SELECT * FROM onceflow.{table}".encode())
    assert ledger.sweep_markers() == 50
    with psycopg.connect(road.url, autocommit=True) as connection:
        for table in ("inbox", "retention"):
            connection.execute(f"TRUNCATE onceflow.{table}".encode())
            connection.execute(f"INSERT INTO onceflow.{table} SELECT * FROM backup.{table}".encode())
        assert read_known_from(connection) is None
    assert ledger.sweep_markers() == 50
    road.run([record(BODY, 0)])
    assert road.states() == {"evt_twice": "processed"}


def test_batches_and_slices_side_by_side_never_wait_for_each_other(road: Bench) -> None:
    """Ten thousand old markers go in tiny slices while batches claim new ones; nobody meets a lock."""
    ledger = Ledger(road.url)
    ledger.add_markers(10_000, days=100)
    stop, failures, deleted = threading.Event(), list[BaseException](), [0]

    def sweep() -> None:
        try:
            while not stop.is_set():
                deleted[0] += ledger.sweep_markers(pages_max=1)
        except BaseException as error:  # noqa: BLE001 - told by the test
            failures.append(error)

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    try:
        for batch in range(20):
            made = [
                record(event_body(f"evt_{batch}_{number}", "invoice.paid", {"id": f"in_{number}"}), batch * 50 + number)
                for number in range(50)
            ]
            end = road.run(made)
            assert end is not None
    finally:
        stop.set()
        sweeper.join(60)
    assert failures == []
    assert len(road.states()) == 1_000 + 10_000 - deleted[0] - ledger.sweep_markers()
    assert sorted(set(road.states().values())) == ["processed"]


def locks_of(connection: psycopg.Connection[Any]) -> list[tuple[str, str]]:
    rows = connection.execute(
        "SELECT relation::regclass::text, mode FROM pg_locks WHERE pid = pg_backend_pid() AND relation IS NOT NULL"
        " AND relation::regclass::text LIKE 'onceflow.%'"
    ).fetchall()
    return [(str(name), str(mode)) for name, mode in rows]


def test_a_slice_holds_no_lock_that_a_batch_waits_for(road: Bench) -> None:
    """Table locks of readers and writers only, and never one on a lane."""
    Ledger(road.url).add_markers(100, days=100)
    with psycopg.connect(road.url) as connection:
        connection.execute("SELECT onceflow.retire_markers('relay:outcomes', 7, 72, clock_timestamp(), 100)")
        held = locks_of(connection)
    assert {mode for _, mode in held} <= {"AccessShareLock", "RowShareLock", "RowExclusiveLock"}
    assert not [name for name, mode in held if name.startswith("onceflow.lane") and mode != "AccessShareLock"]
