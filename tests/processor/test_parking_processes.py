"""Parking with real processes: killed in the middle, mended, retried by a person, stopped past its lease."""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from confluent_kafka import Producer

from tests.processor.armed import armed
from tests.processor.commands import onceflow
from tests.processor.conftest import event_body, record
from tests.processor.processor_process import MakeRoad, Road, wait_until


def run_sql(road: Road, query: str) -> None:
    with psycopg.connect(road.database_url, autocommit=True) as connection:
        connection.execute(query.encode())


@pytest.fixture(name="road")
def road_with_poison(make_road: MakeRoad) -> Road:
    """Handlers of ``test.poison`` do to an event what ``public.poison`` says of it."""
    road = make_road(partitions=2)
    run_sql(road, "CREATE TABLE public.poison (event_id text PRIMARY KEY, kind text NOT NULL)")
    return road


def publish(road: Road, numbers: range, *, key: str, prefix: str = "evt_") -> None:
    producer = Producer({"bootstrap.servers": road.bootstrap, "partitioner": "murmur2_random"})
    for number in numbers:
        subject = {"id": key, "object": "invoice", "amount_paid": 1}
        body = event_body(f"{prefix}{number}", "test.poison", subject)
        made = record(body, 0, topic=road.events, deployment=road.deployment)
        road.produce(producer, made.key, made.value, headers=made.headers)
    assert producer.flush(20) == 0


def seen(road: Road) -> list[str]:
    """What was handled of the key in question, in its order."""
    rows = road.rows("SELECT event_id FROM public.seen ORDER BY ctid")
    return [row["event_id"] for row in rows if not row["event_id"].startswith("evt_other_")]


def let_leases_run_out(road: Road) -> None:
    run_sql(road, "UPDATE onceflow.parked_key SET lease_until = clock_timestamp() WHERE lease_owner IS NOT NULL")


def test_row_49_across_a_kill_and_a_persons_retry(road: Road) -> None:
    run_sql(road, "INSERT INTO public.poison VALUES ('evt_25', 'fails')")
    publish(road, range(1, 51), key="in_bad")
    publish(road, range(50), key="in_good", prefix="evt_other_")
    with armed(road, "processor.before_commit", "kill9") as first:
        wait_until(lambda: first.poll() is not None, "it is killed before its first commit")
    with road.processor():
        road.wait_for_events(100)
        states = road.states()
        assert [states[f"evt_{n}"] for n in range(1, 51)] == ["processed"] * 24 + ["quarantined"] + ["parked"] * 25
        assert {states[f"evt_other_{n}"] for n in range(50)} == {"processed"}
        assert seen(road) == [f"evt_{n}" for n in range(1, 25)]
    run_sql(road, "DELETE FROM public.poison")
    onceflow(road, "quarantine", "retry", "evt_25", "--execute", "--reason", "the customer exists now")
    with armed(road, "redrive.after_lock", "kill9") as second:
        wait_until(lambda: second.poll() is not None, "it is killed in its first redrive")
    let_leases_run_out(road)
    with road.processor(), road.processor():
        wait_until(lambda: set(road.states().values()) == {"processed"}, "all are processed")
    assert seen(road) == [f"evt_{n}" for n in range(1, 51)]
    assert len(set(road.outcome_ids())) == len(road.outcome_ids()) == 100
    assert road.rows("SELECT * FROM onceflow.parked_key") == []


@pytest.mark.parametrize("point", ["redrive.after_claim", "redrive.after_lock", "processor.before_commit"])
def test_killed_in_a_redrive(road: Road, point: str) -> None:
    run_sql(road, "INSERT INTO public.poison VALUES ('evt_1', 'waits')")
    publish(road, range(1, 4), key="in_1")
    with road.processor(
        ONCEFLOW_PROCESSOR_RETRY_WAIT_SECONDS_MIN="3600", ONCEFLOW_PROCESSOR_RETRY_WAIT_SECONDS_MAX="3600"
    ):
        road.wait_for_events(3)
    assert set(road.states().values()) == {"parked"}
    run_sql(road, "DELETE FROM public.poison; UPDATE onceflow.parked_key SET due_at = clock_timestamp()")
    with armed(road, point, "kill9") as process:
        wait_until(lambda: process.poll() is not None, "it is killed")
    let_leases_run_out(road)
    with road.processor():
        wait_until(lambda: set(road.states().values()) == {"processed"}, "all are processed")
    assert seen(road) == ["evt_1", "evt_2", "evt_3"]
    assert len(road.outcome_ids()) == 3


def test_a_redrive_that_slept_past_its_lease_is_fenced(road: Road) -> None:
    run_sql(road, "INSERT INTO public.poison VALUES ('evt_1', 'waits')")
    publish(road, range(1, 4), key="in_1")
    with road.processor(
        ONCEFLOW_PROCESSOR_RETRY_WAIT_SECONDS_MIN="3600", ONCEFLOW_PROCESSOR_RETRY_WAIT_SECONDS_MAX="3600"
    ):
        road.wait_for_events(3)
    run_sql(road, "DELETE FROM public.poison; UPDATE onceflow.parked_key SET due_at = clock_timestamp()")
    with armed(road, "redrive.after_claim", "stop") as zombie:
        wait_until(lambda: road.rows("SELECT 1 AS x FROM onceflow.parked_key WHERE fence = 1") != [], "it has the key")
        let_leases_run_out(road)
        with road.processor():
            wait_until(lambda: set(road.states().values()) == {"processed"}, "the heir has redriven all")
            zombie.send_signal(signal.SIGCONT)
            publish(road, range(4, 6), key="in_1")
            road.wait_for_events(5)
        assert zombie.poll() is None
    assert seen(road) == [f"evt_{n}" for n in range(1, 6)]
    assert len(road.outcome_ids()) == 5
    assert road.rows("SELECT * FROM onceflow.parked") == []


def test_a_parked_event_that_kills_the_process_is_quarantined(road: Road) -> None:
    run_sql(road, "INSERT INTO public.poison VALUES ('evt_1', 'waits')")
    publish(road, range(1, 3), key="in_1")
    with road.processor(
        ONCEFLOW_PROCESSOR_RETRY_WAIT_SECONDS_MIN="3600", ONCEFLOW_PROCESSOR_RETRY_WAIT_SECONDS_MAX="3600"
    ):
        road.wait_for_events(2)
    run_sql(road, "UPDATE public.poison SET kind = 'kills'; UPDATE onceflow.parked_key SET due_at = clock_timestamp()")
    for _ in range(3):
        with road.doomed_processor() as process:
            wait_until(lambda process=process: process.poll() is not None, "it is killed")
        let_leases_run_out(road)
    with road.processor():
        wait_until(lambda: road.states()["evt_1"] == "quarantined", "it is quarantined")
    [row] = road.rows("SELECT code, order_key IS NOT NULL AS blocks FROM onceflow.quarantine")
    assert row == {"code": "process_killed", "blocks": True}
    assert road.states()["evt_2"] == "parked"


def test_what_became_older_than_the_horizon_while_it_was_parked_still_runs(road: Road) -> None:
    """Its marker proves that it had no effect; of a new record of the same age nothing does."""
    received_at = datetime.now(UTC) - timedelta(days=10)

    def put(event_id: str) -> None:
        body = event_body(event_id, "test.poison", {"id": "in_old", "object": "invoice", "amount_paid": 1})
        producer = Producer({"bootstrap.servers": road.bootstrap})
        made = record(body, 0, topic=road.events, deployment=road.deployment, received_at=received_at)
        road.produce(producer, made.key, made.value, headers=made.headers, partition=0)
        assert producer.flush(20) == 0

    run_sql(road, "INSERT INTO public.poison VALUES ('evt_parked', 'waits')")
    put("evt_parked")
    with road.processor():
        road.wait_for_events(1)
    assert road.states() == {"evt_parked": "parked"}
    run_sql(road, "DELETE FROM public.poison")
    put("evt_new")
    with road.processor(ONCEFLOW_PROCESSOR_HORIZON_DAYS="5"):
        wait_until(lambda: road.states() == {"evt_parked": "processed", "evt_new": "quarantined"}, "both have ended")
    assert seen(road) == ["evt_parked"]
    assert [row["code"] for row in road.rows("SELECT code FROM onceflow.quarantine")] == ["too_old"]
