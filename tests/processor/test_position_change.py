"""An operator sets positions: `onceflow progress` against running processors on real services."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from onceflow_processor.kafka_client import admin_client, topic_id
from onceflow_processor.log_reader import LogReader
from onceflow_processor.position_change import Looked, Target, Trust, execute, look
from onceflow_processor.records import Partition
from onceflow_schemas.failure import Refused
from onceflow_schemas.topic_ids import shown_topic_id
from tests.processor.conftest import KEY
from tests.processor.processor_process import Road, wait_until

MakeRoad = Callable[[], Road]


@pytest.fixture
def make_road(kafka_bootstrap: str, fresh_database: str, tmp_path: Path) -> MakeRoad:
    return lambda: Road(kafka_bootstrap, fresh_database, tmp_path, partitions=1)


def ids(prefix: str, count: int) -> list[str]:
    return [f"evt_{prefix}{number}" for number in range(count)]


def onceflow(road: Road, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "onceflow", *arguments],
        env=road._environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def set_position(road: Road, *arguments: str) -> dict[str, Any]:
    done = onceflow(road, "progress", "set", road.events, "0", "--reason", "a test", "--json", *arguments)
    answer: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if "error" in answer else 0), done.stderr
    return answer


def shown(road: Road) -> dict[str, Any]:
    done = onceflow(road, "progress", "show", "--json")
    assert done.returncode == 0, done.stderr
    [row] = [one for one in map(json.loads, done.stdout.splitlines()) if one["state"] != "former"]
    return dict(row)


def audits(road: Road) -> list[dict[str, Any]]:
    return road.rows("SELECT who, action, subject, before, after, reason FROM onceflow.audit ORDER BY id")


def test_a_running_processor_reads_again_from_where_a_person_says(make_road: MakeRoad) -> None:
    road = make_road()
    road.publish(ids("a", 10))
    with road.processor():
        road.wait_for_events(10)
        wait_until(lambda: shown(road)["lag"] == 0, "all is read")
        before = shown(road)
        assert (before["state"], before["next_offset"], before["log_end"]) == ("running", 10, 10)
        dry = set_position(road, "--earliest")
        assert (dry["executed"], dry["records"], dry["with_state"], dry["lost"]) == (False, 10, 10, None)
        assert audits(road) == []
        done = set_position(road, "--earliest", "--execute")
        assert done["epoch"] == before["epoch"] + 1
        # Nothing new comes: the processor notices all the same, takes it over anew and reads all again.
        wait_until(lambda: shown(road)["next_offset"] == 10, "all is read again")
        assert shown(road)["epoch"] > done["epoch"]
    assert len(road.rows("SELECT * FROM public.seen")) == 10
    [row] = audits(road)
    assert (row["action"], row["reason"]) == ("progress_set", "a test")
    assert "@" in row["who"]
    assert (row["before"]["next_offset"], row["after"]["next_offset"]) == (10, 0)


def test_no_record_without_a_state_is_skipped_unless_the_loss_is_accepted(make_road: MakeRoad) -> None:
    road = make_road()
    road.publish(ids("a", 4))
    with road.processor():
        road.wait_for_events(4)
    road.publish(ids("b", 3))
    producer = Producer({"bootstrap.servers": road.bootstrap})
    road.produce(producer, b"k", b"nobody vouches for this", headers=[])
    assert producer.flush(10) == 0
    refused = set_position(road, "--offset", "8", "--execute")
    assert refused["error"]["code"] == "position_refused"
    assert "4 records without a state" in refused["error"]["message"]
    assert (shown(road)["next_offset"], audits(road)) == (4, [])
    done = set_position(road, "--offset", "8", "--accept-loss", "--execute")
    assert done["lost"] == "4 records without a state"
    assert shown(road)["next_offset"] == 8
    assert audits(road)[0]["after"]["accepted_loss"] == "4 records without a state"
    # The fingerprint was taken from the log, so the next take-over believes the position.
    road.publish(ids("c", 2))
    with road.processor():
        road.wait_for_events(6)
    assert set(road.states()) == {*ids("a", 4), *ids("c", 2)}
    assert road.stopped() == {}
    # Read again and skipped by their markers or bytes: then they have a state, and going forward loses nothing.
    set_position(road, "--earliest", "--execute")
    with road.processor():
        road.wait_for_events(9)
    set_position(road, "--offset", "0", "--execute")
    forward = set_position(road, "--offset", "10")
    assert (forward["records"], forward["with_state"], forward["lost"]) == (10, 10, None)


def test_records_that_retention_took_are_accepted_by_name_while_the_processor_runs(make_road: MakeRoad) -> None:
    road = make_road()
    road.publish(ids("a", 5))
    with road.processor():
        road.wait_for_events(5)
    road.publish(ids("b", 10))
    admin = AdminClient({"bootstrap.servers": road.bootstrap})
    for future in admin.delete_records([TopicPartition(road.events, 0, 12)]).values():
        future.result(10)
    with road.processor():
        wait_until(lambda: road.stopped() == {0: "log_start_passed"}, "the partition is stopped")
        row = shown(road)
        assert (row["state"], row["code"]) == ("stopped", "log_start_passed")
        assert "--earliest --accept-loss" in row["next_step"]
        refused = set_position(road, "--earliest", "--execute")
        assert "7 offsets before 12" in refused["error"]["message"]
        set_position(road, "--earliest", "--accept-loss", "--execute")
        road.wait_for_events(8)
    assert road.stopped() == {}


def test_records_that_go_while_they_are_read_stop_the_partition_until_a_person_decides(make_road: MakeRoad) -> None:
    """The client never reads on after an offset out of range, so the processor needs a new one; nobody restarts it."""
    road = make_road()
    road.publish(ids("a", 5))
    with road.processor() as process:
        road.wait_for_events(5)
        process.send_signal(signal.SIGSTOP)
        # The fetch that waits at the broker is answered with the first of these; the next one comes too late.
        road.publish(ids("b", 3))
        road.publish(ids("c", 20))
        admin = AdminClient({"bootstrap.servers": road.bootstrap})
        for future in admin.delete_records([TopicPartition(road.events, 0, 20)]).values():
            future.result(10)
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: road.stopped() == {0: "offset_out_of_range"}, "the partition is stopped")
        set_position(road, "--earliest", "--accept-loss", "--execute")
        wait_until(lambda: set(ids("c", 20)[12:]) <= set(road.states()), "what is left is processed")
    assert road.stopped() == {}


def test_another_record_before_the_position_is_healed_by_reading_all_again(make_road: MakeRoad) -> None:
    road = make_road()
    road.publish(ids("a", 10))
    with road.processor():
        road.wait_for_events(10)
    with psycopg.connect(road.database_url, autocommit=True) as connection:
        connection.execute("UPDATE onceflow.progress SET fingerprint = '9 0 00'")
    road.publish(ids("b", 5))
    with road.processor():
        wait_until(lambda: road.stopped() == {0: "fingerprint_differs"}, "the partition is stopped")
        set_position(road, "--earliest", "--execute")
        road.wait_for_events(15)
    assert len(road.rows("SELECT * FROM public.seen")) == 15


def test_a_topic_in_the_place_of_another_is_begun_by_decision(make_road: MakeRoad) -> None:
    road = make_road()
    road.publish(ids("a", 5))
    with road.processor():
        road.wait_for_events(5)
    admin = AdminClient({"bootstrap.servers": road.bootstrap})
    admin.delete_topics([road.events])[road.events].result(20)
    wait_until(lambda: road.events not in admin.list_topics(timeout=10).topics, "the topic is gone")
    admin.create_topics([NewTopic(road.events, 1, 1)])[road.events].result(20)
    wait_until(lambda: road.events in admin.list_topics(timeout=10).topics, "the topic is there")
    road.publish([*ids("a", 2), *ids("b", 5)])
    with road.processor():
        wait_until(lambda: "topic_changed" in _log_of(road), "the change is told")
        row = shown(road)
        assert (row["state"], row["code"], row["next_offset"]) == ("stopped", "topic_changed", None)
        dry = set_position(road, "--earliest")
        assert (dry["from_offset"], dry["to_offset"], len(dry["former_topic_ids"])) == (None, 0, 1)
        assert (dry["records"], dry["to_read"], dry["to_read_with_state"]) == (0, 7, 2)
        assert "from 0 on there are 7 records, 2 of them with a state" in dry["effect"]
        set_position(road, "--earliest", "--execute")
        road.wait_for_events(10)
    assert len(road.rows("SELECT * FROM public.seen")) == 10
    assert audits(road)[0]["before"] is None


def _log_of(road: Road) -> str:
    return "".join(path.read_text() for path in road.folder.glob("processor-*.log"))


def test_by_time_and_what_is_refused(make_road: MakeRoad) -> None:
    road = make_road()
    road.publish(ids("a", 3))
    with road.processor():
        road.wait_for_events(3)
    late = set_position(road, "--time", "2100-01-01T00:00:00Z")
    early = set_position(road, "--time", "2020-01-01T00:00:00Z")
    assert (late["to_offset"], early["to_offset"]) == (3, 0)
    beyond = set_position(road, "--offset", "4")
    assert "begins at 0 and ends at 3" in beyond["error"]["message"]
    base = ("progress", "set", road.events, "0", "--reason", "x")
    assert onceflow(road, *base).returncode == 2
    assert onceflow(road, *base, "--earliest", "--offset", "1").returncode == 2
    assert onceflow(road, *base, "--time", "yesterday").returncode == 2
    assert onceflow(road, *base[:4], "--earliest", "--reason", " ").returncode == 2
    missing = onceflow(road, "progress", "set", f"missing.{uuid.uuid4().hex}", "0", "--reason", "x", "--earliest")
    assert (missing.returncode, "topic_missing" in missing.stderr) == (5, True)
    away = onceflow(road, "progress", "show", "--set", "kafka.bootstrap.servers=127.0.0.1:9")
    assert away.returncode == 5
    assert road.events in away.stdout
    text = onceflow(road, *base, "--earliest").stdout
    assert "offsets 0 to 2 are read again (3 records, 3 of them with a state" in text


def test_topic_ids_are_shown_as_kafkas_own_tools_print_them(make_road: MakeRoad) -> None:
    road = make_road()
    with psycopg.connect(road.database_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO onceflow.progress (cluster_id, topic_id, partition, topic, next_offset, epoch, owner, clean,"
            " batch_end) VALUES ('another', 'an+other/', 0, %s, 0, 1, 'me', true, 0)",
            [road.events],
        )
    own = shown_topic_id(topic_id(admin_client({"bootstrap.servers": road.bootstrap}), road.events))
    rows = [json.loads(line) for line in onceflow(road, "progress", "show", "--json").stdout.splitlines()]
    assert {row["state"]: row["topic_id"] for row in rows} == {"former": "an-other_", "stopped": own}
    done = set_position(road, "--earliest", "--execute")
    assert (done["topic_id"], done["former_topic_ids"]) == (own, ["an-other_"])
    assert f"of topic id {own} in cluster" in audits(road)[0]["subject"]
    stored = {row["topic_id"] for row in road.rows("SELECT topic_id FROM onceflow.progress")}
    assert stored == {"an+other/", topic_id(admin_client({"bootstrap.servers": road.bootstrap}), road.events)}
    lane = json.loads(onceflow(road, "lanes", "show", "--json").stdout.splitlines()[0])
    [kept] = {row["topic_id"] for row in road.rows("SELECT topic_id FROM onceflow.lane")}
    assert lane["topic_id"] == shown_topic_id(kept)


def test_what_changed_since_the_look_is_not_overwritten(make_road: MakeRoad) -> None:
    road = make_road()
    road.publish(ids("a", 5))
    with road.processor():
        road.wait_for_events(5)
    with psycopg.connect(road.database_url) as connection:
        back, forward = _looked(road, connection, 2), _looked(road, connection, 4)
        assert execute(connection, back, who="me", reason="r", accept_loss=False) > 0
        with pytest.raises(Refused, match="moved from 5 to 2 meanwhile"):
            execute(connection, forward, who="me", reason="r", accept_loss=True)
        skip = _looked(road, connection, 4)
        connection.execute("UPDATE onceflow.progress SET next_offset = 5")
        connection.commit()
        with pytest.raises(Refused, match="moved from 2 to 5 meanwhile"):
            execute(connection, skip, who="me", reason="r", accept_loss=True)
        connection.execute("DELETE FROM onceflow.progress")
        connection.commit()
        with pytest.raises(Refused, match="appeared or went away"):
            execute(connection, skip, who="me", reason="r", accept_loss=True)
        begin = _looked(road, connection, 0)
        execute(connection, begin, who="me", reason="r", accept_loss=False)
        with pytest.raises(Refused, match="appeared or went away"):
            execute(connection, begin, who="me", reason="r", accept_loss=False)
    assert len(audits(road)) == 2


def _looked(road: Road, connection: psycopg.Connection[Any], offset: int) -> Looked:
    kafka = {"bootstrap.servers": road.bootstrap}
    with LogReader(kafka, group="test.reader", deadline_seconds=30) as reader:
        return look(
            connection,
            admin=admin_client(kafka),
            reader=reader,
            partition=Partition(road.events, 0),
            target=Target(offset=offset),
            trust=Trust(road.deployment, {KEY.id: KEY}),
        )
