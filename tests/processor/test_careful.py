"""Records that kill the process are found one by one, and a bad deploy pauses instead of filling the quarantine."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from onceflow_processor.batch_runner import ConnectionSpoiled
from onceflow_processor.breaker import OPEN_FAILURES
from onceflow_processor.careful import CAREFUL_TRIES_MAX, Place
from onceflow_processor.event import Event
from onceflow_processor.handlers import Handlers
from onceflow_processor.records import Partition, Record
from onceflow_processor.takeover import CAREFUL_AFTER_ENDS
from onceflow_processor.tx import Tx
from onceflow_schemas.failure import Unavailable
from tests.processor.conftest import TOPIC, Bench, event_body, record
from tests.processor.processor_process import Road, wait_until

PLACE = Partition(TOPIC, 0)
DEATHS_MAX = CAREFUL_AFTER_ENDS + CAREFUL_TRIES_MAX


def test_a_record_that_kills_the_process_is_quarantined_and_its_neighbours_pass(
    kafka_bootstrap: str, fresh_database: str, tmp_path: Path
) -> None:
    road = Road(kafka_bootstrap, fresh_database, tmp_path, partitions=1)
    road.publish([f"evt_a{n}" for n in range(5)])
    road.publish(["evt_killer"], event_type="test.exit")
    road.publish([f"evt_b{n}" for n in range(5)])
    deaths = 0
    while len(road.states()) < 11:
        assert deaths <= DEATHS_MAX, "the record was never given up"
        with road.doomed_processor() as process:
            wait_until(lambda: process.poll() is not None or len(road.states()) == 11, "it dies or all is done")
            deaths += process.poll() is not None
    assert 1 <= deaths <= DEATHS_MAX
    states = road.states()
    assert states.pop("evt_killer") == "quarantined"
    assert set(states.values()) == {"processed"}
    [row] = road.rows("SELECT code FROM onceflow.quarantine")
    assert row["code"] == "process_killed"
    assert road.rows("SELECT * FROM onceflow.suspect") == []
    assert len(set(road.outcome_ids())) == 10


def bills(numbers: Iterable[int]) -> list[Record]:
    return [record(event_body(f"evt_{n}", "invoice.paid", {"id": f"in_{n}", "object": "invoice"}), n) for n in numbers]


def broken(working: list[bool]) -> Handlers:
    handlers = Handlers()

    @handlers.on("invoice.paid")
    def bill(event: Event, tx: Tx) -> None:
        if not working:
            raise KeyError("a bad deploy")
        tx.outcome("billed", key=event.object["id"], data={})

    return handlers


@pytest.mark.parametrize("batch", [1, 7, 100])
def test_a_bad_deploy_pauses_its_partition(bench: Callable[[Handlers], Bench], batch: int) -> None:
    working: list[bool] = []
    one = bench(broken(working))
    records = bills(range(100))
    end = one.run(records[:batch])
    for at in range(batch, len(records), batch):
        if end.held:
            break
        end = one.run(records[at : at + batch])
    held = end.held[Partition(TOPIC, 0)]
    assert "KeyError" in end.reasons[Partition(TOPIC, 0)]
    assert 10 <= held <= 20
    assert one.next_offset() == held
    assert len(one.quarantine()) == held
    working.append(True)
    one.run(records[held:])
    assert len(one.outcomes()) == 100 - held
    assert len(one.quarantine()) == held


@pytest.mark.parametrize("healthy", [0, 500])
def test_a_bad_deploy_is_found_inside_one_large_batch(bench: Callable[[Handlers], Bench], healthy: int) -> None:
    one = bench(failing(frozenset(range(healthy, 1000))))
    end = one.run(bills(range(1000)))
    # The failure that opens it is not quarantined.
    assert end.held == {Partition(TOPIC, 0): healthy + OPEN_FAILURES - 1}
    assert set(one.quarantine()) == set(range(healthy, healthy + OPEN_FAILURES - 1))
    assert len(one.outcomes()) == healthy


def test_an_event_that_is_bad_itself_waits_until_one_behind_it_proves_the_handler(
    bench: Callable[[Handlers], Bench],
) -> None:
    bad = OPEN_FAILURES + 3
    one = bench(failing(frozenset(range(bad))))
    records = bills(range(bad + 5))
    first = OPEN_FAILURES - 1
    assert one.run(records).held == {PLACE: first}
    assert one.run(records[first:]).held == {PLACE: first}, "it has not waited for long yet"
    make_rehearsal_due(one)
    assert one.run(records[first:bad]).held == {PLACE: first}, "nothing good is in reach"
    for held in range(first, bad - 1):
        make_rehearsal_due(one)
        assert one.run(records[held:]).held == {PLACE: held + 1}, "one event in that time, and no more"
        assert set(one.quarantine()) == set(range(held + 1))
        assert one.outcomes() == []
    make_rehearsal_due(one)
    assert one.run(records[bad - 1 :]).held == {}
    assert set(one.quarantine()) == set(range(bad))
    assert len(one.outcomes()) == 5


def test_a_rehearsal_leaves_nothing_behind(bench: Callable[[Handlers], Bench]) -> None:
    """Neither one that goes well nor one in which the connection is lost."""
    handlers = Handlers()

    @handlers.on("invoice.paid")
    def bill(event: Event, tx: Tx) -> None:
        number = int(event.id.removeprefix("evt_"))
        if number < OPEN_FAILURES:
            raise KeyError
        tx.execute("INSERT INTO public.ledger (event_id) VALUES (%s)", [event.id])
        if number == OPEN_FAILURES:
            tx.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    one = bench(handlers)
    records = bills(range(OPEN_FAILURES + 2))
    held = OPEN_FAILURES - 1
    assert one.run(records[:OPEN_FAILURES]).held == {PLACE: held}
    make_rehearsal_due(one)
    with pytest.raises(ConnectionSpoiled):
        one.run(records[held:])
    assert (one.next_offset(), len(one.quarantine())) == (held, held)
    with psycopg.connect(one.url) as another:
        again = replace(one, connection=another)
        make_rehearsal_due(again)
        assert again.run([records[held], records[-1]]).held == {}
    assert one.rows("SELECT event_id FROM public.ledger") == [{"event_id": f"evt_{OPEN_FAILURES + 1}"}]


def make_rehearsal_due(one: Bench) -> None:
    """As if a minute had passed."""
    for place in one.breaker._rehearse_at:
        one.breaker._rehearse_at[place] = 0.0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_scattered_failures_of_one_large_batch_are_quarantined_and_pause_nothing(
    bench: Callable[[Handlers], Bench], seed: int
) -> None:
    bad = frozenset(random.Random(seed).sample(range(1000), 30))
    one = bench(failing(bad))
    end = one.run(bills(range(1000)))
    assert end.held == {}
    assert set(one.quarantine()) == bad
    assert len(one.outcomes()) == 970
    assert one.next_offset() == 1000


def failing(numbers: frozenset[int]) -> Handlers:
    handlers = Handlers()

    @handlers.on("invoice.paid")
    def bill(event: Event, tx: Tx) -> None:
        if int(event.id.removeprefix("evt_")) in numbers:
            raise KeyError(event.id)
        tx.outcome("billed", key=event.object["id"], data={})

    return handlers


def test_a_record_in_whose_tries_the_database_goes_away_has_killed_nothing(bench: Callable[[Handlers], Bench]) -> None:
    calls = list[str]()
    handlers = Handlers()

    @handlers.on("invoice.paid")
    def bill(event: Event, tx: Tx) -> None:
        calls.append(event.id)
        if len(calls) <= CAREFUL_TRIES_MAX * 2:
            tx.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        tx.outcome("billed", key=event.object["id"], data={})

    one = bench(handlers)
    outlived = set[Place]()
    one.begin(Partition(TOPIC, 0))
    for _ in range(CAREFUL_TRIES_MAX * 2):
        with psycopg.connect(one.url) as one.connection, pytest.raises(Unavailable):
            one.run_carefully(bills([0, 1]), outlived)
    with psycopg.connect(one.url) as one.connection:
        one.run_carefully(bills([0, 1]), outlived)
    assert set(one.states().values()) == {"processed"}
    assert one.quarantine() == {}
    assert one.rows("SELECT * FROM onceflow.suspect") == []
    assert outlived == set()
