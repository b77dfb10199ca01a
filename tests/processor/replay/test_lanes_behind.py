"""Replays over a database that was put back: consumers have more than it knows of, so it hands out nothing until it has caught up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.processor.database_copies import DatabaseCopies, copies_of
from tests.processor.processor_process import LANES, MakeRoad, Road, ids, wait_until
from tests.processor.relaying import lane_states, outbox, publish_all, published, written
from tests.processor.replay.killed import killed_replay, runs
from tests.processor.replay.replaying import error_of, replayed

COUNT = 24
EVENTS = ids("changed", COUNT)
SLOWLY = ("--rate", "4")
"""A transaction has four events then."""

FIRST = {"ONCEFLOW_PROCESSOR_HANDLERS": "tests.processor.replay.first_handlers:handlers"}
UNMENDED = ("--handlers", "tests.processor.replay.first_handlers:handlers")
MENDED = ("--handlers", "tests.processor.replay.mended_handlers:handlers")
WRITTEN = (
    "onceflow.inbox", "onceflow.outcome", "onceflow.fact", "onceflow.fact_claim", "onceflow.booked", "onceflow.booking",
    "onceflow.operation", "onceflow.parked", "onceflow.quarantine", "onceflow.progress", "public.seen",
)  # fmt: skip
REPLAYS = pytest.mark.parametrize(
    ("given", "handlers"),
    [pytest.param((), UNMENDED, id="execute", marks=pytest.mark.long), pytest.param(("--rerun",), MENDED, id="rerun")],
)


@pytest.fixture
def road(make_road: MakeRoad) -> Road:
    road = make_road(partitions=1)
    road.publish(EVENTS, partition=0)
    return road


@pytest.fixture
def copies(road: Road) -> Iterator[DatabaseCopies]:
    with copies_of(road.database_url) as copies:
        yield copies


@REPLAYS
def test_nothing_is_written_while_the_lanes_are_behind_and_then_it_goes_on(
    road: Road, copies: DatabaseCopies, given: tuple[str, ...], handlers: tuple[str, str]
) -> None:
    """The database is put back to an earlier moment of the very run, whose later outcomes consumers have already."""
    rerun = bool(given)
    if rerun:
        with road.processor(**FIRST):
            wait_until(lambda: _next_offset(road) == COUNT, "the position is behind all events")
        publish_all(road)
    begin = ("--topic", road.events, *given, "--execute", "--reason", "a test", *SLOWLY, *handlers)
    killed_replay(road, *begin, point="processor.before_commit", at=2)
    [run] = runs(road)
    resume = ("--resume", str(run["id"]), *SLOWLY, *handlers)
    earlier = copies.take()
    killed_replay(road, *resume, point="processor.before_commit", at=5)
    had = publish_all(road)
    assert had == outbox(road)
    latest = copies.take()

    copies.put_back(earlier)
    assert len(outbox(road)) < len(had)
    assert lane_states(road) == ["ok"] * LANES, "nobody has looked at the topic yet"
    before = written(road, *WRITTEN)
    for _ in range(2):
        code, count = error_of(replayed(road, *resume, topic=False, status=1))
        assert (code, count) == ("replay_held", 1)
        assert lane_states(road) == ["behind"] * LANES
        assert written(road, *WRITTEN) == before
    [held] = runs(road)
    assert (held["state"], held["counts"]) == ("running", run["counts"])
    # The relay leaves the lanes alone as well.
    assert published(road) == had

    copies.put_back(latest)
    answer = replayed(road, *resume, topic=False)
    assert answer["done"] == ({"rerun": COUNT, "changed": COUNT} if rerun else _done_once(COUNT))
    have = publish_all(road)
    assert have == outbox(road)
    assert set(had) <= set(have), "what consumers had is as it was"
    changed = [one for one in have if one[1][3] == "2"]
    assert len(changed) == (COUNT if rerun else 0)
    assert len({one[1][1] for one in have}) == len(have) == COUNT * (3 if rerun else 1)
    assert lane_states(road) == ["ok"] * LANES


def _done_once(count: int) -> dict[str, int]:
    """Of the two handlers that a replay runs, one tells an outcome."""
    return {"processed": count, "outcomes": count}


def _next_offset(road: Road) -> int:
    return sum(row["next_offset"] for row in road.rows("SELECT next_offset FROM onceflow.progress"))
