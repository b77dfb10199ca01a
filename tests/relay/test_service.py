"""The relay as a process: ready, drained, refused at its start, killed, stopped, fenced."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from onceflow.embedded.services import EmbeddedServices
from onceflow.migrations import migrate
from onceflow_processor.relay.service import RelayOptions, run
from onceflow_schemas.failure import Misconfigured
from tests.conftest import create_topic
from tests.relay.lanes import Lanes, add_rows, check_exactly_once, stopped, wait_for


def test_ready_then_published_soon_after_the_commit_then_drained(lanes: Lanes, tmp_path: Path) -> None:
    state_file = tmp_path / "relay.json"
    process = lanes.start_ready(state_file=str(state_file))
    state = json.loads(state_file.read_text())
    assert state["pid"] == process.pid
    lanes.add(0, 1)
    wait_for(lanes.all_published, "the first outcome is published")
    delays = []
    with lanes.connect() as connection:
        for _ in range(10):
            lanes.add(1, 1)
            committed = time.monotonic()
            wait_for(
                lambda: (
                    connection.execute("SELECT published_seq = head_seq FROM onceflow.lane WHERE lane = 1").fetchone()
                    == (True,)
                ),
                "the outcome is published",
            )
            delays.append(time.monotonic() - committed)
    print("from commit to published, seconds:", sorted(round(delay, 3) for delay in delays))
    assert sorted(delays)[5] < 0.5, "a busy machine may be slow, but not once in two"
    with urllib.request.urlopen(state["metrics_url"], timeout=10) as page:
        text = page.read().decode()
    assert 'onceflow_relay_published_total{lane="1"} 10.0' in text
    assert "onceflow_relay_active 1.0" in text
    process.terminate()
    assert process.wait(20) == 0
    assert lanes.sql("SELECT lease_until <= clock_timestamp() FROM onceflow.lease") == [(True,)], "the lease is free"
    check_exactly_once(lanes, {0: 1, 1: 10, 2: 0})


@pytest.mark.long
@pytest.mark.soak
def test_killed_again_and_again_under_load(lanes: Lanes) -> None:
    """More than 20,000 outcomes, some of them committed while the relay runs, and a relay that dies at random moments."""
    seed = random.randrange(1_000_000)
    print("seed:", seed)
    choice = random.Random(seed)
    rows = 7_200
    for number in range(3):
        lanes.add(number, rows // 2)
    for kill in range(7):
        process = lanes.start_ready(owner=f"relay {kill}", batch_records_max=choice.choice([20, 100, 500]))
        target = sum(lanes.state(number)[1] for number in range(3)) + choice.randrange(1, 2_000)
        for number in range(3):
            lanes.add(number, rows // 2 // 8)
        wait_for(
            lambda target=target: sum(lanes.state(number)[1] for number in range(3)) >= target or lanes.all_published(),  # type: ignore[misc]
            "the relay has got somewhere",
        )
        process.send_signal(signal.SIGKILL)
        process.wait(20)
    for number in range(3):
        lanes.add(number, rows - rows // 2 - 7 * (rows // 2 // 8))
    process = lanes.start_ready(owner="last")
    wait_for(lanes.all_published, "everything is published")
    check_exactly_once(lanes, dict.fromkeys(range(3), rows))
    assert lanes.sql("SELECT token FROM onceflow.lease") == [(8,)]
    process.terminate()
    assert process.wait(20) == 0


def test_a_stopped_relay_wakes_up_fenced(lanes: Lanes) -> None:
    first = lanes.start_ready(owner="first", batch_records_max=50)
    lanes.add(0, 3_000)
    wait_for(lambda: lanes.state(0)[1] > 100, "the first relay is at work")
    with stopped(first):
        second = lanes.start_ready(owner="second")
        wait_for(lanes.all_published, "the second relay took over")
        assert lanes.sql("SELECT owner FROM onceflow.lease") == [("second",)]
    lanes.add(0, 500)
    wait_for(lanes.all_published, "the rest")
    assert first.poll() is None, "the zombie lives on and waits for its turn"
    assert lanes.sql("SELECT owner FROM onceflow.lease") == [("second",)]
    second.terminate()
    assert second.wait(20) == 0
    lanes.add(0, 100)
    wait_for(lanes.all_published, "the first relay has its turn")
    check_exactly_once(lanes, {0: 3_600, 1: 0, 2: 0})
    assert lanes.sql("SELECT owner FROM onceflow.lease") == [("first",)]


def test_many_writers_some_of_which_roll_back_late(lanes: Lanes) -> None:
    """The gap that a cursor over a serial number has: whoever takes a number first and commits last is skipped."""
    lanes.start_ready()

    def write(seed: int) -> int:
        choice, done, pause = random.Random(seed), 0, threading.Event()
        with psycopg.connect(lanes.database_url) as connection:
            for _ in range(25):
                rows = choice.randrange(1, 20)
                add_rows(connection, 0, rows)
                pause.wait(choice.choice([0, 0, 0.005, 0.02]))
                if choice.random() < 0.3:
                    connection.rollback()
                else:
                    connection.commit()
                    done += rows
        return done

    with ThreadPoolExecutor(8) as pool:
        committed = list(pool.map(write, range(8)))
    wait_for(lanes.all_published, "everything is published")
    check_exactly_once(lanes, {0: sum(committed), 1: 0, 2: 0})


def test_a_transaction_that_a_dead_relay_left_open_is_aborted(lanes: Lanes) -> None:
    dead = lanes.transactional_producer(lanes.transactional_id)
    dead.begin_transaction()
    for _ in range(10):
        dead.produce(lanes.topic, b"never", b"k", 0)
    dead.flush(20)
    lanes.add(0, 10)
    lanes.start_ready()
    wait_for(lanes.all_published, "the outcomes are published")
    check_exactly_once(lanes, {0: 10, 1: 0, 2: 0})
    assert len(lanes.records(isolation="read_uncommitted")[0]) == 20


def test_lost_connections_to_the_database_are_waited_out(lanes: Lanes) -> None:
    process = lanes.start_ready(batch_records_max=100)
    for _ in range(4):
        lanes.add(0, 500)
        lanes.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'onceflow-relay'"
        )
    wait_for(lanes.all_published, "everything is published")
    check_exactly_once(lanes, {0: 2_000, 1: 0, 2: 0})
    assert process.poll() is None


@pytest.mark.soak
@pytest.mark.long
def test_broker_and_database_killed_under_load(tmp_path: Path, cache_dir: Path) -> None:
    """Each is killed with -9 and started again; the relay is never restarted, and nothing is lost or doubled."""
    with EmbeddedServices(data_dir=tmp_path / "services", cache_dir=cache_dir) as services:
        with psycopg.connect(services.database_url) as connection:
            migrate(connection)
        topic = create_topic(services.kafka_bootstrap, prefix="outcomes", partitions=3)
        lanes = Lanes(services.kafka_bootstrap, services.database_url, topic, count=3, folder=tmp_path)
        lanes.create()
        process = lanes.start_ready(batch_records_max=100)
        try:
            for service in (services.kafka, services.postgres, services.kafka):
                before = lanes.state(0)[1]
                for number in range(3):
                    lanes.add(number, 2_500)
                wait_for(lambda before=before: lanes.state(0)[1] > before, "the relay is at work")  # type: ignore[misc]
                assert service.pid is not None
                os.kill(service.pid, signal.SIGKILL)
                wait_for(lambda service=service: service.poll() is not None, "it is dead")  # type: ignore[misc]
                service.start()
                service.wait_ready()
            assert lanes.bootstrap == services.kafka_bootstrap
            wait_for(lanes.all_published, "everything is published", seconds=120)
            assert process.poll() is None
            check_exactly_once(lanes, dict.fromkeys(range(3), 7_500))
        finally:
            lanes.stop_all()


def test_settings_that_cannot_work_are_refused_at_the_start(lanes: Lanes) -> None:
    def options(**changes: Any) -> RelayOptions:
        return RelayOptions(**lanes.options(**changes, state_file=None))

    with pytest.raises(Misconfigured) as caught:
        run(options(lease_ttl_seconds=0.5, batch_records_max=0, poll_seconds=0))
    assert len(caught.value.faults) == 3
    with pytest.raises(Misconfigured, match="topic_missing"):
        run(options(outcome_topic="no.such.topic"))
    other = create_topic(lanes.bootstrap, prefix="outcomes", partitions=2)
    with pytest.raises(Misconfigured, match="topic_mismatch"):
        run(options(outcome_topic=other))
    with pytest.raises(Misconfigured, match="port_in_use"):
        run(options(metrics_host="192.0.2.1"))
    lanes.sql(
        "INSERT INTO onceflow.deployment (id, accounts, mode, system_id, timeline) VALUES ('x', '{a}', 'test', '1', 1)"
    )
    with pytest.raises(Misconfigured, match="database_other_deployment"):
        run(options())
    lanes.sql("DROP SCHEMA onceflow CASCADE")
    with pytest.raises(Misconfigured, match="schema_missing"):
        run(options())


def test_options_show_no_secrets(lanes: Lanes) -> None:
    given = lanes.options(kafka={"sasl.password": "geheim"}, database_url="postgresql://u:geheim@h/d", state_file=None)
    assert "geheim" not in repr(RelayOptions(**given))


def test_a_dependency_that_is_away_at_the_start_is_waited_for(lanes: Lanes) -> None:
    process = lanes.start(database_url="postgresql://nobody@127.0.0.1:1/x")
    wait_for(lambda: lanes.log().count("database_unavailable") >= 2, "it has tried twice")
    process.terminate()
    assert process.wait(20) == 0
    process = lanes.start(kafka={"bootstrap.servers": "127.0.0.1:1"})
    wait_for(lambda: "broker_unavailable" in lanes.log(), "it has tried")
    process.terminate()
    assert process.wait(30) == 0
