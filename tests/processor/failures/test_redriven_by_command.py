"""From a poisoned event to its redrive, as a person does it: real processors, the real command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer

from tests.processor.conftest import event_body, record
from tests.processor.processor_process import MakeRoad, Road, wait_until

EVENTS = [f"evt_{number}" for number in range(1, 9)]
POISONED = "evt_3"


def publish(road: Road) -> None:
    """Events of one key, the third of which is poisoned, and one of another key."""
    producer = Producer({"bootstrap.servers": road.bootstrap})
    for event_id, thing in [*((one, "in_1") for one in EVENTS), ("evt_other", "in_2")]:
        subject = {"id": thing, "object": "invoice", "poisoned": event_id == POISONED}
        made = record(event_body(event_id, "test.mend", subject), 0, topic=road.events, deployment=road.deployment)
        road.produce(producer, made.key, made.value, headers=made.headers, partition=0)
    assert producer.flush(20) == 0


def decide(road: Road, *arguments: str) -> subprocess.Popen[Any]:
    environment = {**os.environ, "DATABASE_URL": road.database_url, "ONCEFLOW_CONFIG": "/dev/null"}
    command = [sys.executable, "-m", "onceflow", "quarantine", *arguments, "--execute", "--reason", "mended"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("decision", ["retry", "skip"])
def test_what_waits_behind_a_poisoned_event_follows_it_in_order_and_once(make_road: MakeRoad, decision: str) -> None:
    road = make_road(partitions=1)
    with road.processor(), road.processor():
        publish(road)
        road.wait_for_events(len(EVENTS) + 1)
        assert Counter(road.states().values()) == {"processed": 3, "quarantined": 1, "parked": 5}
        if decision == "retry":
            assert decide(road, "retry", POISONED).wait(60) == 0
            wait_until(lambda: attempts(road) >= 1 and road.states()[POISONED] == "quarantined", "it has failed again")
            with psycopg.connect(road.database_url) as owner:
                owner.execute("CREATE TABLE public.mended ()")
        # Two people at once: one of them does it, and the other is told that it is done.
        both = [decide(road, decision, POISONED) for _ in range(2)]
        assert sorted(one.wait(60) for one in both) in ([0, 0], [0, 1])
        done = EVENTS if decision == "retry" else [one for one in EVENTS if one != POISONED]
        wait_until(lambda: list(road.states().values()).count("processed") == len(done) + 1, "all is done")
        wait_until(lambda: not road.rows("SELECT FROM onceflow.parked_key"), "no key waits")
    seen = [row["event_id"] for row in road.rows("SELECT event_id FROM public.seen ORDER BY ctid")]
    assert [one for one in seen if one != "evt_other"] == done
    assert len(road.outcome_ids()) == len(done) + 1
    assert road.rows("SELECT FROM onceflow.parked") == []
    audits = road.rows("SELECT action FROM onceflow.audit ORDER BY id")
    assert [row["action"] for row in audits] == [f"quarantine_{decision}"] * (2 if decision == "retry" else 1)


def attempts(road: Road) -> int:
    [row] = road.rows("SELECT attempts FROM onceflow.quarantine")
    return int(row["attempts"])


@pytest.mark.long
def test_a_record_that_nobody_vouched_for_runs_once_when_its_key_is_known(make_road: MakeRoad) -> None:
    """The key of the bridge's attestation is missing, then wrong, then right; a person asks each time, at last twice."""
    road = make_road(partitions=1)

    def row() -> dict[str, Any]:
        [found] = road.rows("SELECT code, decision, retry_asked_at IS NOT NULL AS asked FROM onceflow.quarantine")
        return found

    with road.processor(ONCEFLOW_ATTESTATION_KEYS=f"other={'0' * 32}"):
        road.publish(["evt_a"], partition=0)
        wait_until(lambda: road.rows("SELECT FROM onceflow.quarantine"), "the record is kept")
    assert row() == {"code": "unknown_key_id", "decision": None, "asked": False}
    with road.processor(ONCEFLOW_ATTESTATION_KEYS=f"k1={'0' * 32}"):
        assert decide(road, "retry", "--code", "unknown_key_id").wait(60) == 0
        wait_until(lambda: row()["code"] != "unknown_key_id", "it is judged again")
    assert row() == {"code": "unauthenticated", "decision": None, "asked": False}
    assert road.states() == {}
    with road.processor(), road.processor():
        both = [decide(road, "retry", "--code", "unauthenticated") for _ in range(2)]
        assert sorted(one.wait(60) for one in both) in ([0, 0], [0, 1])
        wait_until(lambda: road.states() == {"evt_a": "processed"}, "its event has run")
        assert decide(road, "retry", "evt_a").wait(60) == 1
        road.publish(["evt_a", "evt_b"], partition=0)
        wait_until(lambda: "evt_b" in road.states(), "a second record of it is passed")
    assert [one["event_id"] for one in road.rows("SELECT event_id FROM public.seen ORDER BY 1")] == ["evt_a", "evt_b"]
    assert len(road.outcome_ids()) == 2
    assert row() == {"code": "unauthenticated", "decision": "retried", "asked": False}
