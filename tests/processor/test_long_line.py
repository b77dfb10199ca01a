"""Ten thousand events parked behind one of their key: memory stays bounded, and one retry lets all go on in their order."""

from __future__ import annotations

import time
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer

from tests.processor.commands import onceflow
from tests.processor.conftest import event_body, record
from tests.processor.processor_process import MakeRoad, Road, wait_until

COUNT = 10_000
FILLER = "x" * 8_000
KEY = "in_long"
PARKING_KB_MAX = 80_000
REDRIVING_KB_MAX = 40_000
"""Over what the processor has when it is ready.  The bodies of the line alone are more than 80,000 kB.  While it is parked,
librdkafka reads ahead by up to 32,768 kB; a redrive reads some of the line at a time."""

SETTINGS = {
    "ONCEFLOW_PROCESSOR_BATCH_RECORDS_MAX": "200",
    "ONCEFLOW_PROCESSOR_RETRY_WAIT_SECONDS_MIN": "3600",
    "ONCEFLOW_PROCESSOR_RETRY_WAIT_SECONDS_MAX": "3600",
}


def publish_line(road: Road) -> None:
    producer = Producer({"bootstrap.servers": road.bootstrap, "linger.ms": 20})
    for number in range(COUNT):
        subject = {"id": KEY, "object": "invoice", "number": number, "filler": FILLER}
        made = record(
            event_body(f"evt_{number}", "test.line", subject), 0, topic=road.events, deployment=road.deployment
        )
        road.produce(producer, made.key, made.value, headers=made.headers, partition=0)
    assert producer.flush(30) == 0


def memory_kb(pid: int, name: str) -> int:
    """``VmRSS`` is what it has now, ``VmHWM`` the most since ``forget_peak``."""
    for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise AssertionError(name)


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5", "utf-8")


def count(road: Road, state: str) -> int:
    return int(road.rows("SELECT count(*) AS n FROM onceflow.inbox WHERE state = %s", state)[0]["n"])


@pytest.mark.soak
@pytest.mark.long
def test_ten_thousand_behind_one(make_road: MakeRoad) -> None:
    road = make_road(partitions=1)
    publish_line(road)
    with road.processor(**SETTINGS) as process:
        ready_kb = memory_kb(process.pid, "VmRSS")
        forget_peak(process.pid)
        begun = time.monotonic()
        wait_until(lambda: count(road, "parked") == COUNT, "all are parked")
        parked_seconds, parked_kb = time.monotonic() - begun, memory_kb(process.pid, "VmHWM")
        [key] = road.rows("SELECT reason, event_id FROM onceflow.parked_key")
        assert (key, road.outcome_ids()) == ({"reason": "retry", "event_id": "evt_0"}, [])
        with psycopg.connect(road.database_url, autocommit=True) as mend:
            mend.execute("CREATE TABLE public.mended ()")
        forget_peak(process.pid)
        begun = time.monotonic()
        onceflow(road, "parked", "retry", "--key", f"acct_test/{KEY}", "--execute", "--reason", "it is back")
        wait_until(lambda: count(road, "processed") == COUNT, "all are processed")
        drained_seconds, drained_kb = time.monotonic() - begun, memory_kb(process.pid, "VmHWM")
    print(
        f"{COUNT:,} events: parked in {parked_seconds:.1f} s, drained in {drained_seconds:.1f} s;"
        f" ready {ready_kb:,} kB, peaks {parked_kb:,} and {drained_kb:,} kB"
    )
    done = road.rows(
        "SELECT convert_from(value, 'UTF8')::jsonb -> 'number' AS number FROM onceflow.outcome ORDER BY lane, seq"
    )
    assert [row["number"] for row in done] == list(range(COUNT))
    assert road.rows("SELECT FROM onceflow.parked") == road.rows("SELECT FROM onceflow.parked_key") == []
    assert parked_kb - ready_kb <= PARKING_KB_MAX
    assert drained_kb - ready_kb <= REDRIVING_KB_MAX
