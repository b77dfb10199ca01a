"""The relay beside the processor of a test, and what consumers have of its outcomes."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.processor.processor_process import LANES, Road, end, wait_until
from tests.relay.lanes import header, read_all

HEADERS = ("onceflow_sequence", "ce_id", "onceflow_outcome_id", "onceflow_revision")
Published = tuple[int, tuple[str | None, ...], bytes | None]


@contextmanager
def relay(road: Road) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``onceflow relay``."""
    number = uuid.uuid4().hex[:6]
    state, log = road.folder / f"relay-{number}.json", road.folder / f"relay-{number}.log"
    environment = {**road._environment, "ONCEFLOW_RUNTIME_STATE_FILE": str(state)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "onceflow", "relay"], env=environment, stdout=output, stderr=output
        )
    try:
        wait_until(lambda: state.exists() or process.poll() is not None, "the relay is ready")
        assert process.poll() is None, log.read_text()[-3000:]
        yield process
    finally:
        end(process)


def publish_all(road: Road) -> list[Published]:
    """Have a relay publish what is there; return what consumers have then."""
    with relay(road):
        wait_until(lambda: all_published(road), "all outcomes are published")
    return published(road)


def all_published(road: Road) -> bool:
    return all(row["head_seq"] == row["published_seq"] for row in road.rows("SELECT * FROM onceflow.lane"))


def published(road: Road) -> list[Published]:
    """All records that a consumer reads: lane, headers, value, in the order of the lanes."""
    found = read_all(road.bootstrap, road.outcomes, partitions=LANES)
    return [(lane, tuple(header(one, name) for name in HEADERS), one.value()) for lane in found for one in found[lane]]


def outbox(road: Road) -> list[Published]:
    """The same of the database's rows."""
    rows = road.rows("SELECT lane, seq, ce_id, outcome_id, revision, value FROM onceflow.outcome ORDER BY lane, seq")
    return [
        (row["lane"], (str(row["seq"]), str(row["ce_id"]), str(row["outcome_id"]), str(row["revision"])), row["value"])
        for row in rows
    ]


def lane_states(road: Road) -> list[str]:
    return [row["state"] for row in road.rows("SELECT state FROM onceflow.lane ORDER BY lane")]


def written(road: Road, *names: str) -> dict[str, list[dict[str, Any]]]:
    """Whole tables, to be compared with what they are later."""
    return {name: road.rows(f"SELECT * FROM {name} AS t ORDER BY t::text") for name in names}
