"""PostgreSQL's data folder put back to an earlier copy: every outcome once in the topic, dense, and the same as its row.

Events in between were processed and published; the copy knows nothing of it.  The services that start then find the topic
ahead, import what it knows, read the events again, and hand out only what is new.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from onceflow.embedded.services import EmbeddedServices
from onceflow.migrations import migrate
from tests.chaos.snapshots import copy_owned
from tests.processor.commands import onceflow
from tests.processor.processor_process import LANES, Road, wait_until
from tests.processor.relaying import all_published, lane_states, outbox, published, relay

BEFORE, BETWEEN, AFTER = 200, 1_500, 50


class World:
    """The services, a road over them, and copies of PostgreSQL's folder."""

    def __init__(self, services: EmbeddedServices, folder: Path) -> None:
        self.services = services
        self.folder = folder
        with psycopg.connect(services.database_url) as connection:
            migrate(connection)
        self.road = Road(services.kafka_bootstrap, services.database_url, folder)

    @property
    def cluster(self) -> Path:
        return self.folder / "services" / "postgres" / "cluster"

    def copy(self) -> Path:
        self.services.postgres.stop()
        copy_owned(self.cluster, self.folder / "copy")
        self.services.postgres.start()
        self.services.postgres.wait_ready()
        return self.folder / "copy"

    def put_back(self, copy: Path) -> None:
        self.services.postgres.stop()
        shutil.rmtree(self.cluster)
        copy.rename(self.cluster)
        self.services.postgres.start()
        self.services.postgres.wait_ready()

    def copy_outcomes(self) -> Path:
        self.services.kafka.stop()
        copy = self.folder / "outcomes-copy"
        for log in self.outcome_logs:
            shutil.copytree(log, copy / log.name)
        self.services.kafka.start()
        self.services.kafka.wait_ready()
        return copy

    def put_outcomes_back(self, copy: Path) -> None:
        """The records behind the copy are gone, and the relay's cursors still name them."""
        self.services.kafka.stop()
        for log in self.outcome_logs:
            shutil.rmtree(log)
            shutil.copytree(copy / log.name, log)
        self.services.kafka.start()
        self.services.kafka.wait_ready()

    @property
    def outcome_logs(self) -> list[Path]:
        found = [path for path in self.services.folder.kafka.rglob(f"{self.road.outcomes}-*") if path.is_dir()]
        assert len(found) == LANES
        return found

    def work(self, count: int) -> None:
        """Run processor and relay until so many events are processed and published."""
        with relay(self.road), self.road.processor():
            wait_until(lambda: self.done(count), f"{count} events are processed and published")

    def done(self, count: int) -> bool:
        states = list(self.road.states().values())
        open_lanes = lane_states(self.road) == ["ok"] * LANES
        return states == ["processed"] * count and all_published(self.road) and open_lanes


@pytest.fixture
def world(tmp_path: Path, cache_dir: Path) -> Iterator[World]:
    tmp_path.chmod(0o755)
    with EmbeddedServices(data_dir=tmp_path / "services", cache_dir=cache_dir) as services:
        yield World(services, tmp_path)


def events(prefix: str, count: int) -> list[str]:
    return [f"evt_{prefix}{number}" for number in range(count)]


def check(world: World, count: int) -> None:
    """Each event has one outcome, once in the topic, dense, the same as its row; and its effect once."""
    have = published(world.road)
    assert have == outbox(world.road)
    assert len(have) == len({one[1][1] for one in have}) == count
    for lane in range(LANES):
        sequences = [int(one[1][0] or 0) for one in have if one[0] == lane]
        assert sequences == list(range(1, len(sequences) + 1))
    [seen] = world.road.rows("SELECT count(*) AS rows, count(DISTINCT event_id) AS events FROM public.seen")
    assert (seen["rows"], seen["events"]) == (count, count)
    assert world.road.rows("SELECT FROM onceflow.outcome_contradiction") == []


@pytest.mark.soak
def test_a_folder_put_back_loses_and_doubles_nothing(world: World) -> None:
    world.road.publish(events("a", BEFORE))
    world.work(BEFORE)
    copy = world.copy()
    world.road.publish(events("b", BETWEEN))
    with ExitStack() as running:
        first = running.enter_context(relay(world.road))
        second = running.enter_context(world.road.processor())
        wait_until(lambda: world.done(BEFORE + BETWEEN), "all are published")
        first.kill()
        second.kill()
        first.wait()
        second.wait()
    had = published(world.road)
    assert len(had) == BEFORE + BETWEEN
    world.put_back(copy)
    assert len(outbox(world.road)) == BEFORE
    world.road.publish(events("c", AFTER))
    world.work(BEFORE + BETWEEN + AFTER)
    check(world, BEFORE + BETWEEN + AFTER)
    assert set(had) <= set(published(world.road)), "what consumers had is as it was"
    [deployment] = world.road.rows("SELECT restores FROM onceflow.deployment")
    assert deployment["restores"] == 1


@pytest.mark.long
@pytest.mark.soak
def test_a_folder_put_back_and_the_topics_last_records_gone(world: World) -> None:
    """A person accepts that what consumers had of the lost records may come under other sequences; nothing else is asked."""
    world.road.publish(events("a", BEFORE))
    world.work(BEFORE)
    copy = world.copy()
    world.road.publish(events("b", 300))
    world.work(BEFORE + 300)
    outcomes = world.copy_outcomes()
    kept = published(world.road)
    world.road.publish(events("c", 1_000))
    count = BEFORE + 300 + 1_000
    world.work(count)
    had = published(world.road)
    world.put_outcomes_back(outcomes)
    world.put_back(copy)
    assert (len(published(world.road)), len(outbox(world.road))) == (BEFORE + 300, BEFORE)
    with relay(world.road), world.road.processor():
        wait_until(lambda: lane_states(world.road) == ["stopped:tail_lost"] * LANES, "the lost tail is seen")
    assert len(outbox(world.road)) == BEFORE
    for lane in range(LANES):
        decision = ("--accept", "tail_lost", "--reason", "the disk was lost", "--execute")
        onceflow(world.road, "lanes", "resume", str(lane), *decision)
    assert lane_states(world.road) == ["behind"] * LANES
    world.work(count)
    check(world, count)
    have = published(world.road)
    assert set(kept) <= set(have)
    assert {one[1][1] for one in have} == {one[1][1] for one in had}
