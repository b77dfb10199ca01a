"""Replays everything from offset 0, twice, while live traffic runs: ``make replay-large`` with 100,000 events.

Rule: what counts is read from the tables afterwards: not one outcome, operation or run of a handler more for what is replayed,
and every live event has its own exactly once.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from onceflow.embedded.services import EmbeddedServices
from onceflow.migrations import migrate
from tests.processor.processor_process import Road, ids, wait_until
from tests.processor.replay.replaying import replayed, untouched

LIVE_PER_SECOND = 100
LARGE_EVENTS = 100_000
LARGE_WAIT_SECONDS_MAX = 1_800.0
REQUEST_SHARE = 10
EXECUTE = ("--execute", "--reason", "everything from offset 0")


@dataclass(frozen=True, slots=True)
class Replay:
    """One replay of everything."""

    records: int
    skipped: int
    ahead: int
    seconds: float
    live_meanwhile: int


@dataclass(frozen=True, slots=True)
class Result:
    """What was replayed, and what there was more of afterwards."""

    events: int
    live: int
    replays: tuple[Replay, ...]
    new_outcomes: int
    new_operations: int
    new_runs: int
    epochs_moved: int
    live_outcomes: int


class Live:
    """Publishes events at a steady pace until it is stopped."""

    def __init__(self, road: Road) -> None:
        self._road = road
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._publish, name="live traffic")
        self.sent = 0

    def _publish(self) -> None:
        while not self._over.wait(1.0):
            self._road.publish(ids(f"live{self.sent}x", LIVE_PER_SECOND))
            self.sent += LIVE_PER_SECOND

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()


def _counts(road: Road) -> tuple[int, int, int, int]:
    """Outcomes, operations, runs of handlers, and the sum of all epochs, without those of live events."""
    [row] = road.rows(
        "SELECT (SELECT count(*) FROM onceflow.outcome WHERE cause NOT LIKE '%%/evt_live%%') AS outcomes,"
        " (SELECT count(*) FROM onceflow.operation) AS operations,"
        " (SELECT count(*) FROM public.seen WHERE event_id NOT LIKE 'evt_live%%') AS runs,"
        " (SELECT coalesce(sum(epoch), 0) FROM onceflow.progress) AS epochs, %s AS unused",
        0,
    )
    return row["outcomes"], row["operations"], row["runs"], int(row["epochs"])


def _done(road: Road) -> int:
    return int(road.rows("SELECT count(*) AS n FROM onceflow.inbox")[0]["n"])


def replay_beside_live(road: Road, *, events: int, wait_seconds_max: float) -> Result:
    """Have a processor do events, then replay them twice beside live traffic."""
    requests = events // REQUEST_SHARE
    road.publish(ids("a", events - requests))
    road.publish(ids("r", requests), event_type="test.request")
    with road.processor():
        wait_until(lambda: _done(road) == events, "all events are done", limit_seconds=wait_seconds_max)
        groups, before, live = untouched(road)[1], _counts(road), Live(road)
        with live.running():
            replays = tuple(_replay(road, live) for _ in range(2))
        wait_until(lambda: _done(road) == events + live.sent, "live is done", limit_seconds=wait_seconds_max)
        assert untouched(road)[1] == groups, "a replay joins no group"
    after = _counts(road)
    [row] = road.rows(
        "SELECT count(*) AS n, count(DISTINCT outcome_id) AS ids FROM onceflow.outcome WHERE cause LIKE %s",
        "%/evt_live%",
    )
    assert row["n"] == row["ids"]
    new = [now - then for now, then in zip(after, before, strict=True)]
    return Result(events, live.sent, replays, new[0], new[1], new[2], new[3], row["n"])


def _replay(road: Road, live: Live) -> Replay:
    sent, begun = live.sent, time.monotonic()
    answer = replayed(road, *EXECUTE)
    seconds = time.monotonic() - begun
    fates = answer["fates"]
    # Between a look at the position and the end of the stretch the processor goes on, so a live record is skipped or ahead.
    assert set(fates) <= {"skipped", "ahead"}, answer
    assert answer["done"] == {}, answer
    return Replay(answer["records"], fates["skipped"], fates.get("ahead", 0), seconds, live.sent - sent)


def table(result: Result) -> str:
    """Return the result as Markdown."""
    lines = [
        "| replay | records read | skipped as processed | left to the processor | seconds | live events meanwhile |"
    ]
    lines.append("|---|---|---|---|---|---|")
    lines += [
        f"| {number} | {one.records:,} | {one.skipped:,} | {one.ahead:,} | {one.seconds:.1f} | {one.live_meanwhile:,} |"
        for number, one in enumerate(result.replays, start=1)
    ]
    lines += [
        "",
        (
            f"Events that were processed before: {result.events:,}. Of them after both replays: **{result.new_outcomes} new outcomes, "
            f"{result.new_operations} new operations**, {result.new_runs} further runs of a handler."
        ),
        f"Live events meanwhile: {result.live:,}, outcomes of them: {result.live_outcomes:,}. Epochs raised: {result.epochs_moved}.",
    ]
    return "\n".join(lines)


def main() -> None:
    """Start the services, do it with many events, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=LARGE_EVENTS)
    given = parser.parse_args()
    cache = Path.home() / ".cache" / "onceflow"
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedServices(data_dir=Path(folder) / "services", cache_dir=cache) as services,
    ):
        with psycopg.connect(services.database_url) as connection:
            migrate(connection)
        road = Road(services.kafka_bootstrap, services.database_url, Path(folder))
        result = replay_beside_live(road, events=given.events, wait_seconds_max=LARGE_WAIT_SECONDS_MAX)
        print(table(result))
    assert (result.new_outcomes, result.new_operations, result.new_runs, result.epochs_moved) == (0, 0, 0, 0)
    assert result.live_outcomes == result.live


if __name__ == "__main__":
    main()
