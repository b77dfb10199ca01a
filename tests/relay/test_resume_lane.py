"""Lanes that stand still, and a person's decision, on a real broker and database; what comes out is counted raw."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from onceflow_processor.relay.lane_store import connect
from onceflow_processor.relay.resume_lane import LookedAt, ResumeSettings, look, resume
from onceflow_processor.relay.resumption import Fine, NotResumable, Resume
from onceflow_schemas.failure import Refused
from tests.every_run import mostly_long
from tests.relay.lanes import Lanes, check_exactly_once, header, run_dry, sequence, term


def settings(lanes: Lanes) -> ResumeSettings:
    return ResumeSettings(
        {"bootstrap.servers": lanes.bootstrap}, lanes.topic, lanes.group, lanes.transactional_id, "a person"
    )


def looked(lanes: Lanes, lane: int = 0) -> LookedAt:
    with connect(lanes.database_url, role="test", prepared=False) as connection:
        return look(connection, settings(lanes), lane=lane)


def offered(lanes: Lanes, lane: int = 0) -> Resume:
    decision = looked(lanes, lane).decision
    assert isinstance(decision, Resume), decision
    return decision


def let_go(lanes: Lanes, lane: int = 0, *, accept: str | None = None) -> None:
    with connect(lanes.database_url, role="test", prepared=False) as connection:
        resume(connection, settings(lanes), lane=lane, who="me@here", reason="a test", accept=accept)


def relay_runs_dry(lanes: Lanes) -> None:
    with term(lanes) as session:
        run_dry(session)


def publish(lanes: Lanes, rows: int = 5) -> None:
    for lane in range(lanes.count):
        lanes.add(lane, rows)
    relay_runs_dry(lanes)


def audits(lanes: Lanes) -> list[tuple[Any, ...]]:
    return lanes.sql("SELECT who, action, subject, before, after, reason FROM onceflow.audit ORDER BY id")


def put_strange(lanes: Lanes, lane: int) -> None:
    producer = Producer({"bootstrap.servers": lanes.bootstrap})
    producer.produce(lanes.topic, b"by somebody", partition=lane)
    assert producer.flush(20) == 0


def test_a_moved_cursor_goes_on_without_anybody_noticing(lanes: Lanes) -> None:
    publish(lanes)
    lanes.commit_cursor(0, 2, "by somebody")
    lanes.add(0, 3)
    lanes.add(1, 3)
    relay_runs_dry(lanes)
    assert lanes.state(0)[2] == "stopped:cursor_moved"
    assert lanes.state(1)[1:3] == (8, "ok")
    assert offered(lanes).accept is None
    with pytest.raises(Refused, match="no tail_lost to accept"):
        let_go(lanes, accept="tail_lost")
    assert audits(lanes) == []
    let_go(lanes)
    assert lanes.state(0) == (8, 5, "ok", "")
    relay_runs_dry(lanes)
    check_exactly_once(lanes, {0: 8, 1: 8, 2: 5})
    [(who, action, subject, before, after, reason)] = audits(lanes)
    assert (who, action, reason) == ("me@here", "lane_resume", "a test")
    assert subject == f"lane 0 of {lanes.topic}"
    assert (before["state"], after["state"], after["accepted"]) == ("stopped:cursor_moved", "ok", None)


def test_while_a_relay_is_active_nothing_is_decided(lanes: Lanes) -> None:
    publish(lanes)
    lanes.commit_cursor(0, 2, "by somebody")
    lanes.add(0, 1)
    with term(lanes) as session:
        run_dry(session)
        with pytest.raises(Refused, match="a relay is active"):
            let_go(lanes)
    assert lanes.state(0)[2] == "stopped:cursor_moved"
    assert audits(lanes) == []


def test_a_lost_tail_is_published_again_with_the_same_ids(lanes: Lanes) -> None:
    publish(lanes)
    # The log loses nothing here; that the database knows of more than the topic has is the same to the relay.
    lanes.sql("UPDATE onceflow.lane SET head_seq = head_seq + 3, published_seq = published_seq + 3 WHERE lane = 0")
    lanes.sql(
        "INSERT INTO onceflow.outcome (lane, seq, outcome_id, ce_id, type, key, value, cause)"
        " SELECT 0, n, md5('0:' || n)::uuid, md5('0:' || n)::uuid, 'payment.done', 'k', '{}', 'event:x'"
        " FROM generate_series(6, 8) n"
    )
    relay_runs_dry(lanes)
    assert lanes.state(0)[2] == "stopped:tail_lost"
    with pytest.raises(Refused) as caught:
        let_go(lanes)
    assert "--accept tail_lost" in caught.value.hint
    let_go(lanes, accept="tail_lost")
    assert lanes.state(0) == (8, 5, "ok", "")
    relay_runs_dry(lanes)
    check_exactly_once(lanes, {0: 8, 1: 5, 2: 5})


def test_outcomes_that_the_database_has_no_more_are_not_passed_over(lanes: Lanes) -> None:
    publish(lanes)
    lanes.sql("UPDATE onceflow.lane SET head_seq = 8, published_seq = 8 WHERE lane = 0")
    relay_runs_dry(lanes)
    decision = looked(lanes).decision
    assert isinstance(decision, NotResumable)
    assert decision.reason.startswith("3 of the outcomes 6 to 8")


@pytest.mark.parametrize("published", mostly_long([0, 5], every_run=[0]))
def test_records_of_others_are_passed_over(lanes: Lanes, published: int) -> None:
    if published:
        publish(lanes)
    put_strange(lanes, 0)
    put_strange(lanes, 0)
    lanes.add(0, 4)
    relay_runs_dry(lanes)
    assert lanes.state(0)[2] == "stopped:diverged"
    assert offered(lanes).accept == "diverged"
    let_go(lanes, accept="diverged")
    # Twice: the accepted cursor is believed at each start until something was published behind it.
    relay_runs_dry(lanes)
    relay_runs_dry(lanes)
    lanes.add(0, 1)
    relay_runs_dry(lanes)
    assert lanes.state(0)[1:] == (published + 5, "ok", "")
    ours = [one for one in lanes.records()[0] if header(one, "ce_id") is not None]
    assert [sequence(one) for one in ours] == list(range(1, published + 6))


def test_a_topic_that_was_made_anew_gets_everything_again(lanes: Lanes) -> None:
    publish(lanes)
    lanes.create_anew()
    relay_runs_dry(lanes)
    assert {lanes.state(lane)[2] for lane in range(lanes.count)} == {"stopped:topic_changed"}
    for lane in range(lanes.count):
        assert offered(lanes, lane).accept == "topic_changed"
        let_go(lanes, lane, accept="topic_changed")
    lanes.add(0, 2)
    relay_runs_dry(lanes)
    check_exactly_once(lanes, {0: 7, 1: 5, 2: 5})


def test_an_emptied_lane_whose_cursor_is_left(lanes: Lanes) -> None:
    """A cluster that lost a partition's log but kept the offsets: the cursor is beyond the end."""
    lanes.add(0, 3)
    lanes.sql("UPDATE onceflow.lane SET published_seq = 3 WHERE lane = 0")
    lanes.commit_cursor(0, 4, "3 " + str(lanes.sql("SELECT ce_id FROM onceflow.outcome WHERE seq = 3")[0][0]))
    relay_runs_dry(lanes)
    assert lanes.state(0)[2] == "stopped:tail_lost"
    let_go(lanes, accept="tail_lost")
    assert lanes.cursor(0) == (0, "none")
    relay_runs_dry(lanes)
    check_exactly_once(lanes, {0: 3, 1: 0, 2: 0})


def test_a_database_that_was_put_back_is_not_resumed(lanes: Lanes) -> None:
    publish(lanes)
    lanes.sql("DELETE FROM onceflow.outcome WHERE lane = 0 AND seq > 3")
    lanes.sql("UPDATE onceflow.lane SET head_seq = 3, published_seq = 3 WHERE lane = 0")
    relay_runs_dry(lanes)
    assert lanes.state(0)[2] == "behind"
    with pytest.raises(Refused) as caught:
        let_go(lanes, accept="behind")
    assert "Restore the database" in caught.value.hint


def test_a_lane_that_agrees_again_is_opened(lanes: Lanes) -> None:
    publish(lanes)
    lanes.sql("UPDATE onceflow.lane SET state = 'stopped:tail_lost', detail = 'x' WHERE lane = 0")
    let_go(lanes)
    assert lanes.state(0) == (5, 5, "ok", "")


def test_what_needs_no_look_and_what_is_not_there(lanes: Lanes) -> None:
    assert looked(lanes).decision == Fine()
    with pytest.raises(Refused, match="there is no lane 7"):
        looked(lanes, 7)
    with pytest.raises(Refused, match="the lane is ok"):
        let_go(lanes)


def onceflow(lanes: Lanes, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "DATABASE_URL": lanes.database_url,
        "ONCEFLOW_DEPLOYMENT_ID": "shop",
        "ONCEFLOW_KAFKA_BOOTSTRAP_SERVERS": lanes.bootstrap,
        "ONCEFLOW_TOPICS_OUTCOMES": lanes.topic,
    }
    return subprocess.run(
        [sys.executable, "-m", "onceflow", "lanes", *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_the_commands(lanes: Lanes, tmp_path: Path) -> None:
    publish(lanes)
    # The command's own group has no cursor: that is unknown, and no disagreement, until somebody puts one there.
    lanes.sql("UPDATE onceflow.lane SET head_seq = 8, published_seq = 8, state = 'stopped:tail_lost' WHERE lane = 1")
    lanes.sql(
        "INSERT INTO onceflow.outcome (lane, seq, outcome_id, ce_id, type, key, value, cause)"
        " SELECT 1, n, gen_random_uuid(), gen_random_uuid(), 'a.b', 'k', '{}', 'event:x' FROM generate_series(6, 8) n"
    )
    rows = [json.loads(line) for line in onceflow(lanes, tmp_path, "show", "--json").stdout.splitlines()]
    assert [(row["lane"], row["state"], row["topic_seq"]) for row in rows] == [
        (0, "ok", "5"), (1, "stopped:tail_lost", "5"), (2, "ok", "5"),
    ]  # fmt: skip
    assert rows[0]["next_step"] == ""
    assert rows[1]["next_step"] == "onceflow lanes resume 1 --accept tail_lost --reason '...'"
    assert rows[1]["meaning"]
    table = onceflow(lanes, tmp_path, "show")
    assert "stopped:tail_lost" in table.stdout
    dry = json.loads(onceflow(lanes, tmp_path, "resume", "1", "--reason", "x", "--json").stdout)
    assert (dry["possible"], dry["accept"], dry["executed"]) == (True, "tail_lost", False)
    refused = onceflow(lanes, tmp_path, "resume", "1", "--reason", "x", "--execute")
    assert (refused.returncode, "resume_refused" in refused.stderr) == (1, True)
    done = onceflow(lanes, tmp_path, "resume", "1", "--reason", "x", "--accept", "tail_lost", "--execute")
    assert (done.returncode, "resumed" in done.stdout) == (0, True), done.stderr
    assert lanes.state(1) == (8, 5, "ok", "")
    assert onceflow(lanes, tmp_path, "resume", "1", "--reason", " ").returncode == 2
    away = onceflow(lanes, tmp_path, "show", "--set", "kafka.bootstrap.servers=127.0.0.1:9")
    assert (away.returncode, "ok" in away.stdout) == (5, True)


def test_a_log_without_own_records_left_behind_a_stranger(lanes: Lanes) -> None:
    publish(lanes)
    put_strange(lanes, 0)
    admin = AdminClient({"bootstrap.servers": lanes.bootstrap})
    low = lanes.records()[0][-1].offset()
    assert low is not None
    for future in admin.delete_records([TopicPartition(lanes.topic, 0, low)]).values():
        future.result(10)
    relay_runs_dry(lanes)
    assert isinstance(looked(lanes).decision, NotResumable)
