"""Outcomes that the topic lost in its middle go out again, once, with their ids and sequences."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer

from onceflow_processor.relay.cursor import OutcomeRecord, StrangeRecord, TailRecord
from onceflow_processor.relay.holes import HOLES_MAX, find_holes
from onceflow_processor.relay.lane_store import connect
from onceflow_processor.relay.refill import Found, look, refill
from onceflow_processor.relay.resume_lane import ResumeSettings
from onceflow_schemas.failure import Refused
from tests.relay.lanes import DEPLOYMENT, Lanes, header, run_dry, sequence, term

ID = uuid.UUID(int=1)
SCRIPT = Path(__file__).with_name("refill_process.py")


def stream(*seqs: int) -> list[TailRecord]:
    """A negative one is a refill."""
    return [OutcomeRecord(offset, abs(seq), ID, refill=seq < 0) for offset, seq in enumerate(seqs)]


@pytest.mark.parametrize(
    ("seqs", "from_start", "missing"),
    [
        ((1, 2, 3), True, []),
        ((2, 3), True, [1]),
        ((5, 6), False, []),
        ((1, 4, 5, 8), True, [2, 3, 6, 7]),
        ((1, 4, 5, -3, 6), True, [2]),
        ((1, 3, -2, -2), True, []),
        ((1, 13), True, [2, 3, 4, 5, 6, 7, 8, 9, 10]),
        ((), True, []),
    ],
)
def test_holes(*, seqs: tuple[int, ...], from_start: bool, missing: list[int]) -> None:
    found = find_holes(stream(*seqs), from_start=from_start, published=10)
    assert (found.missing, found.fault, found.records) == (missing, "", len(seqs))


def test_what_is_more_than_a_hole() -> None:
    assert "again" in find_holes(stream(1, 2, 2), from_start=True, published=10).fault
    assert "no outcome" in find_holes([StrangeRecord(3)], from_start=True, published=10).fault
    assert "more than" in find_holes(stream(1, HOLES_MAX + 3), from_start=True, published=HOLES_MAX + 3).fault


def settings(lanes: Lanes) -> ResumeSettings:
    kafka = {"bootstrap.servers": lanes.bootstrap}
    return ResumeSettings(kafka, lanes.topic, lanes.group, lanes.transactional_id, "operator")


def refilled(lanes: Lanes) -> Found:
    with connect(lanes.database_url, role="test", prepared=False) as connection:
        return refill(connection, settings(lanes), lane=0, deployment=DEPLOYMENT, who="ann", reason="lost")


def looked(lanes: Lanes) -> Found:
    with connect(lanes.database_url, role="test", prepared=False) as connection:
        return look(connection, settings(lanes), lane=0)


def lose(lanes: Lanes, lost: set[int]) -> None:
    """Publish, then make the topic anew with all records but some, as a damaged log would have them."""
    lanes.add(0, 20)
    with term(lanes) as session:
        run_dry(session)
    records = lanes.records()[0]
    lanes.create_anew()
    lanes.sql("UPDATE onceflow.lane SET topic_id = %s", [lanes.topic_id()])
    producer = Producer({"bootstrap.servers": lanes.bootstrap})
    for one in records:
        if sequence(one) not in lost:
            producer.produce(lanes.topic, one.value(), one.key(), partition=0, headers=one.headers())
    assert producer.flush(20) == 0


def test_a_hole_is_refilled_once_and_the_lane_goes_on(lanes: Lanes) -> None:
    lose(lanes, {5, 11})
    assert looked(lanes).scan.missing == [5, 11]
    assert len(lanes.records()[0]) == 18, "a look publishes nothing"
    assert refilled(lanes).scan.missing == [5, 11]
    assert refilled(lanes).scan.missing == []
    extra = [one for one in lanes.records()[0] if header(one, "onceflow_refill")]
    assert [(sequence(one), header(one, "onceflow_refill")) for one in extra] == [(5, "1"), (11, "1")]
    ids = dict(lanes.sql("SELECT seq, ce_id::text FROM onceflow.outcome WHERE lane = 0"))
    assert [header(one, "ce_id") for one in extra] == [ids[5], ids[11]]
    assert lanes.sql("SELECT who, action, reason FROM onceflow.audit") == [("ann", "lane_refill", "lost")]
    lanes.add(0, 3)
    with term(lanes) as session:
        run_dry(session)
    assert lanes.state(0) == (23, 23, "ok", "")
    found = {header(one, "ce_id"): sequence(one) for one in lanes.records()[0]}
    assert sorted(found.values()) == list(range(1, 24))
    assert len(lanes.records()[0]) == 23


def test_what_the_database_has_no_more_is_not_refilled(lanes: Lanes) -> None:
    lose(lanes, {5, 11})
    lanes.sql("DELETE FROM onceflow.outcome WHERE lane = 0 AND seq = 11")
    with pytest.raises(Refused, match="the outcome 11 is not in the database"):
        refilled(lanes)
    assert len(lanes.records()[0]) == 18
    assert lanes.sql("SELECT FROM onceflow.audit") == []


def command(
    lanes: Lanes, *arguments: str, dies_at: str = "nowhere", passes: int = 0
) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "DATABASE_URL": lanes.database_url,
        "ONCEFLOW_DEPLOYMENT_ID": DEPLOYMENT,
        "ONCEFLOW_KAFKA_BOOTSTRAP_SERVERS": lanes.bootstrap,
        "ONCEFLOW_TOPICS_OUTCOMES": lanes.topic,
    }
    return subprocess.run(
        [sys.executable, str(SCRIPT), dies_at, str(passes), "lanes", "refill", *arguments],
        cwd=lanes.folder, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def told(done: subprocess.CompletedProcess[str]) -> tuple[int, int, bool]:
    """Its status, how many it found missing, and whether it published them."""
    found = json.loads(done.stdout)
    return done.returncode, found["missing"], found["executed"]


def test_the_command_looks_refills_and_finds_nothing_more(lanes: Lanes) -> None:
    lose(lanes, {5, 11})
    assert told(command(lanes, "0", "--reason", "lost", "--json")) == (1, 2, False)
    assert len(lanes.records()[0]) == 18
    assert told(command(lanes, "0", "--reason", "lost", "--execute", "--json")) == (0, 2, True)
    table = command(lanes, "0", "--reason", "lost")
    assert (table.returncode, "first_missing" in table.stdout) == (0, True), table
    assert sorted(sequence(one) for one in lanes.records()[0]) == list(range(1, 21))
    lanes.sql("UPDATE onceflow.lane SET state = 'stopped:tail_lost' WHERE lane = 0")
    stopped = command(lanes, "0", "--reason", "lost", "--execute")
    assert (stopped.returncode, "stopped:tail_lost" in stopped.stderr) == (1, True), stopped


@pytest.mark.parametrize(
    "point",
    [
        "after_begin",
        pytest.param("after_produce", marks=pytest.mark.long),
        pytest.param("before_offsets", marks=pytest.mark.long),
        "before_commit",
    ],
)
def test_a_refill_that_is_killed_is_finished_by_the_next(lanes: Lanes, point: str) -> None:
    """The second of three batches dies: what was committed is not sent again, what was not is."""
    lose(lanes, {5, 11, 12})
    died = command(lanes, "0", "--reason", "lost", "--execute", dies_at=f"relay.{point}", passes=2)
    assert died.returncode == -signal.SIGKILL, died
    assert len(lanes.records()[0]) == 18, "17 and the first batch"
    # The dead one held the lease: its time is over.
    lanes.sql("UPDATE onceflow.lease SET lease_until = clock_timestamp()")
    assert told(command(lanes, "0", "--reason", "lost", "--execute", "--json")) == (0, 2, True)
    assert sorted(sequence(one) for one in lanes.records()[0]) == list(range(1, 21))
    refills = [sequence(one) for one in lanes.records()[0] if header(one, "onceflow_refill")]
    assert refills == [5, 11, 12]
    assert lanes.sql("SELECT count(*) FROM onceflow.audit") == [(2,)]
