"""The processor as a process: positions, stops, take-overs and dependencies that go away, on real services."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
import uuid
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from onceflow.embedded import EmbeddedServices
from onceflow_processor.breaker import OPEN_FAILURES
from tests.every_run import mostly_long
from tests.processor.processor_process import MakeRoad, Road, end, ids, wait_until

NOTIFY_SECONDS_MAX = 60.0
EVERY_INPUT = pytest.mark.parametrize(
    "input_format", mostly_long(["onceflow", "eventbridge", "stripe-json"], every_run=["onceflow"])
)
"""What happens to a log or a member is the same whoever writes the topic, in whatever format, with whatever keys and trust."""


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_events_end_once_over_restarts(make_road: MakeRoad, protocol: str) -> None:
    road = make_road(group_protocol=protocol)
    road.publish(ids("a", 30))
    with road.processor() as first:
        road.wait_for_events(30)
        assert end(first) == 0
    assert {row["clean"] for row in road.rows("SELECT clean FROM onceflow.progress")} == {True}
    road.publish([*ids("a", 10), *ids("b", 20)])
    with road.processor():
        road.wait_for_events(50)
        wait_until(lambda: _done(road) == 60, "all 60 records are passed")
    assert set(road.states().values()) == {"processed"}
    assert len(set(road.outcome_ids())) == 50


def _done(road: Road) -> int:
    return sum(row["next_offset"] for row in road.rows("SELECT next_offset FROM onceflow.progress"))


def test_what_is_asked_for_is_told_to_the_workers_of_operations(make_road: MakeRoad) -> None:
    road = make_road()
    road.publish(["evt_a"], event_type="test.request")
    with psycopg.connect(road.database_url, autocommit=True) as worker:
        worker.execute("LISTEN onceflow_operations")
        with road.processor():
            assert len(list(worker.notifies(timeout=NOTIFY_SECONDS_MAX, stop_after=1))) == 1
            [row] = road.rows("SELECT subject, state FROM onceflow.operation")
            assert row == {"subject": "in_evt_a", "state": "requested"}
            # The connection of the wake-ups is cut, and nobody but its thread notices.
            worker.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'onceflow-wake-up' AND datname = current_database()"
            )
            road.publish(["evt_b"], event_type="test.request")
            assert len(list(worker.notifies(timeout=NOTIFY_SECONDS_MAX, stop_after=1))) == 1
    assert set(road.states().values()) == {"processed"}


def test_a_partition_whose_fact_an_open_transaction_holds_waits_and_says_why(make_road: MakeRoad) -> None:
    road = make_road(partitions=2)
    waiting = "SELECT partition, waiting FROM onceflow.progress WHERE waiting IS NOT NULL"
    with psycopg.connect(road.database_url) as application:
        application.execute(
            "INSERT INTO onceflow.fact (namespace, key, cause) VALUES ('requested', 'in_evt_a', 'app:x')"
        )
        road.publish(["evt_a"], event_type="test.request", partition=0)
        road.publish(ids("b", 50), partition=1)
        with road.processor():
            wait_until(lambda: road.rows(waiting), "a partition waits")
            road.wait_for_events(50)
            [row] = road.rows(waiting)
            assert row["partition"] == 0
            assert row["waiting"].startswith("a fact of requested is held by a transaction that has not ended")
            road.publish(ids("c", 50), partition=1)
            road.wait_for_events(100)
            assert "evt_a" not in road.states()
            application.rollback()
            road.wait_for_events(101)
    assert set(road.states().values()) == {"processed"}
    assert road.rows(waiting) == []
    assert len(road.rows("SELECT * FROM onceflow.operation")) == 1


def test_a_broker_without_the_new_group_protocol_is_served_by_the_classic_one(
    tmp_path: Path, cache_dir: Path, fresh_database: str
) -> None:
    old = {"group.coordinator.rebalance.protocols": "classic"}
    with EmbeddedServices(data_dir=tmp_path / "old", cache_dir=cache_dir, extra_broker_properties=old) as services:
        road = Road(services.kafka_bootstrap, fresh_database, tmp_path)
        road.publish(ids("a", 3))
        with road.processor():
            road.wait_for_events(3)
    assert '"event": "group_protocol_classic"' in _log_of(road)


def test_records_of_strangers_are_kept_and_passed(make_road: MakeRoad) -> None:
    road = make_road(partitions=1)
    producer = Producer({"bootstrap.servers": road.bootstrap})
    attested = [("onceflow_attestation", b"v1 nobody AAAA")]
    for key, value, headers in (
        (b"k", None, []),
        (b"k", b"", []),
        (None, b"not json", []),
        (b"k", b"{}", attested),
        (b"k", b"\xff" * 100_000, [("h", None)] * 3),
        (b"k", b"x", [(f"h{n}", b"v") for n in range(10_000)]),
    ):
        road.produce(producer, key, value, headers=headers)
    producer.flush(10)
    road.publish(["evt_good"])
    with road.processor():
        road.wait_for_events(1)
    rows = road.rows('SELECT "offset", code, event_id, value, headers FROM onceflow.quarantine ORDER BY "offset"')
    assert [row["code"] for row in rows] == [
        "empty_record",
        "empty_record",
        "unauthenticated",
        "bad_headers",
        "unauthenticated",
        "too_many_headers",
    ]
    assert all(row["event_id"] is None for row in rows)
    assert bytes(rows[4]["value"]) == b"\xff" * 100_000
    assert rows[4]["headers"] == [["h", None]] * 3
    assert len(rows[5]["headers"]) == 10_000
    assert road.states() == {"evt_good": "processed"}


def test_a_partition_that_waits_shows_in_the_metrics_until_it_goes_on(make_road: MakeRoad) -> None:
    road = make_road()
    with road.processor():
        with psycopg.connect(road.database_url, autocommit=True) as connection:
            connection.execute("ALTER TABLE public.seen RENAME TO away")
            road.publish([f"evt_{n}" for n in range(OPEN_FAILURES + 2)], partition=1)
            wait_until(lambda: waiting(road, 1) == 1, "the partition waits")
            connection.execute("ALTER TABLE public.away RENAME TO seen")
        wait_until(lambda: waiting(road, 1) == 0, "it goes on")
        road.wait_for_events(OPEN_FAILURES + 2)
        road.publish(["evt_more"], partition=2)
        road.wait_for_events(OPEN_FAILURES + 3)
        assert (waiting(road, 1), waiting(road, 2)) == (0, 0)


def waiting(road: Road, partition: int) -> float | None:
    """The gauge of a partition; None before it is there."""
    [state] = road.folder.glob("processor-*.json")
    with urllib.request.urlopen(json.loads(state.read_text())["metrics_url"], timeout=10) as answer:
        text = answer.read().decode()
    name = f'onceflow_processor_partition_waiting{{partition="{partition}",topic="{road.events}"}} '
    return next((float(line.removeprefix(name)) for line in text.splitlines() if line.startswith(name)), None)


@EVERY_INPUT
def test_a_partition_added_while_running_is_read_from_its_first_record(make_road: MakeRoad, input_format: str) -> None:
    road = make_road(partitions=1, input_format=input_format)
    road.publish(ids("a", 3))
    with road.processor():
        road.wait_for_events(3)
        admin = AdminClient({"bootstrap.servers": road.bootstrap})
        admin.create_partitions([NewPartitions(road.events, 2)])[road.events].result(10)
        road.publish(ids("b", 10), partition=1)
        road.wait_for_events(13)


@EVERY_INPUT
def test_a_topic_that_was_made_anew_stops_and_says_so(make_road: MakeRoad, input_format: str) -> None:
    road = make_road(partitions=1, input_format=input_format)
    road.publish(ids("a", 5))
    with road.processor():
        road.wait_for_events(5)
    recreate(road)
    road.publish(ids("b", 5))
    with road.processor() as process:
        wait_until(lambda: "topic_changed" in _log_of(road), "the change is told")
        assert process.poll() is None
    assert set(road.states()) == set(ids("a", 5))


def recreate(road: Road) -> None:
    admin = AdminClient({"bootstrap.servers": road.bootstrap})
    admin.delete_topics([road.events])[road.events].result(20)

    def made() -> bool:
        try:
            admin.create_topics([NewTopic(road.events, 1, 1)])[road.events].result(20)
        except Exception:  # noqa: BLE001 - the deletion is still going on.
            return False
        return True

    wait_until(made, "the topic is made anew")


def _log_of(road: Road) -> str:
    return "".join(path.read_text() for path in road.folder.glob("processor-*.log"))


@EVERY_INPUT
def test_records_that_retention_took_unread_stop_the_partition_with_the_range(
    make_road: MakeRoad, input_format: str
) -> None:
    road = make_road(partitions=2, input_format=input_format)
    road.publish(ids("a", 10), partition=0)
    road.publish(ids("p", 2), partition=1)
    with road.processor():
        road.wait_for_events(12)
    road.publish(ids("b", 20), partition=0)
    delete_records(road, partition=0, before=20)
    with road.processor():
        road.publish(ids("q", 2), partition=1)
        wait_until(lambda: road.stopped() == {0: "log_start_passed"}, "the partition is stopped")
        road.wait_for_events(14)
    assert "10 to 19" in _log_of(road)


def delete_records(road: Road, *, partition: int, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": road.bootstrap})
    place = TopicPartition(road.events, partition, before)
    for future in admin.delete_records([place]).values():
        future.result(10)


def test_records_that_retention_took_after_they_were_read_are_nobodys_business(make_road: MakeRoad) -> None:
    road = make_road(partitions=1)
    road.publish(ids("a", 10))
    with road.processor():
        road.wait_for_events(10)
    delete_records(road, partition=0, before=10)
    road.publish(ids("b", 5))
    with road.processor():
        road.wait_for_events(15)
    assert road.stopped() == {}


@EVERY_INPUT
def test_another_record_before_the_position_stops_the_partition(make_road: MakeRoad, input_format: str) -> None:
    road = make_road(partitions=1, input_format=input_format)
    road.publish(ids("a", 10))
    with road.processor():
        road.wait_for_events(10)
    with psycopg.connect(road.database_url, autocommit=True) as connection:
        connection.execute("UPDATE onceflow.progress SET fingerprint = '9 0 00'")
    road.publish(ids("b", 5))
    with road.processor():
        wait_until(lambda: road.stopped() == {0: "fingerprint_differs"}, "the partition is stopped")
    assert len(road.states()) == 10


@EVERY_INPUT
def test_a_log_that_ends_before_the_position_stops_the_partition(make_road: MakeRoad, input_format: str) -> None:
    road = make_road(partitions=1, input_format=input_format)
    road.publish(ids("a", 10))
    with road.processor():
        road.wait_for_events(10)
    with psycopg.connect(road.database_url, autocommit=True) as connection:
        connection.execute("UPDATE onceflow.progress SET next_offset = 15")
    with road.processor():
        wait_until(lambda: road.stopped() == {0: "tail_lost"}, "the partition is stopped")


@EVERY_INPUT
def test_a_position_put_back_reads_again_and_does_nothing_twice(make_road: MakeRoad, input_format: str) -> None:
    road = make_road(partitions=1, input_format=input_format)
    road.publish(ids("a", 20))
    with road.processor():
        road.wait_for_events(20)
    before = road.outcome_ids()
    with psycopg.connect(road.database_url, autocommit=True) as connection:
        connection.execute("UPDATE onceflow.progress SET next_offset = 0, fingerprint = NULL")
    with road.processor():
        wait_until(lambda: _done(road) == 20, "all records are passed again")
    assert road.outcome_ids() == before
    assert len(road.rows("SELECT * FROM public.seen")) == 20


@EVERY_INPUT
def test_an_epoch_raised_by_somebody_else_is_met_by_proof_and_a_new_take_over(
    make_road: MakeRoad, input_format: str
) -> None:
    road = make_road(partitions=1, input_format=input_format)
    with road.processor():
        road.publish(ids("a", 5))
        road.wait_for_events(5)
        with psycopg.connect(road.database_url, autocommit=True) as connection:
            connection.execute("UPDATE onceflow.progress SET epoch = epoch + 1, owner = 'somebody'")
        road.publish(ids("b", 5))
        road.wait_for_events(10)
    assert '"event": "fenced"' in _log_of(road)
    assert len(set(road.outcome_ids())) == 10


def test_a_database_that_goes_away_is_waited_for(make_road: MakeRoad) -> None:
    road = make_road(partitions=1)
    with road.processor():
        road.publish(ids("a", 5))
        road.wait_for_events(5)
        name = psycopg.conninfo.conninfo_to_dict(road.database_url)["dbname"]
        with psycopg.connect(road.database_url, autocommit=True, dbname="postgres") as connection:
            connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false'.encode())
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
                [name],
            )
            road.publish(ids("b", 5))
            wait_until(lambda: '"event": "database_away"' in _log_of(road), "the processor notices")
            connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true'.encode())
        road.wait_for_events(10)
    assert len(set(road.outcome_ids())) == 10


@EVERY_INPUT
def test_a_zombie_writes_nothing(make_road: MakeRoad, input_format: str) -> None:
    road = make_road(partitions=1, input_format=input_format)
    road.publish(ids("a", 5))
    with road.processor() as zombie:
        road.wait_for_events(5)
        zombie.send_signal(signal.SIGSTOP)
        with road.processor() as heir:
            road.publish(ids("b", 5))
            road.wait_for_events(10)
            zombie.send_signal(signal.SIGCONT)
            road.publish(ids("c", 5))
            road.wait_for_events(15)
            assert end(heir) == 0
        road.publish(ids("d", 5))
        road.wait_for_events(20)
    assert len(set(road.outcome_ids())) == 20
    assert len(road.rows("SELECT * FROM public.seen")) == 20


def test_start_is_refused_without_topics_with_all_it_needs_said(make_road: MakeRoad) -> None:
    road = make_road()
    missing = f"missing.{uuid.uuid4().hex[:8]}"
    with pytest.raises(AssertionError, match="topic_missing"), road.processor(ONCEFLOW_TOPICS_OUTCOMES=missing):
        pass


def test_a_second_signal_ends_at_once(make_road: MakeRoad) -> None:
    road = make_road(partitions=1)
    with road.processor() as process:
        road.publish(["evt_stuck"], event_type="test.spin")
        wait_until(lambda: _blocked(process), "the handler spins")
        process.send_signal(signal.SIGTERM)
        # Two that are pending at once are one to the kernel, so the second is sent when the first was taken.
        wait_until(lambda: _taken(process, signal.SIGTERM), "the first signal is taken")
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) != 0


def _taken(process: subprocess.Popen[bytes], number: signal.Signals) -> bool:
    status = dict(line.split(":\t") for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
    return not int(status["ShdPnd"], 16) & 1 << number - 1


def _blocked(process: subprocess.Popen[bytes]) -> bool:
    """A spinning handler shows in the processor time of the process."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) > 200
