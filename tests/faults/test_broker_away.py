"""A broker that goes away between two steps of a member or a relay: nobody gives up, nothing is doubled, nothing is dropped."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from onceflow.embedded.services import EmbeddedServices
from onceflow_processor.relay.withhold import withhold
from tests.conftest import create_topic
from tests.processor.processor_process import Road, ids, wait_until
from tests.processor.test_members import QUICK_CLASSIC, group_offsets
from tests.relay.lanes import Lanes, check_exactly_once, wait_for

WAVE = 20
WAVES_MAX = 10
TOLD = re.compile("group_commit_failed|partitions_lost")
TOO_LARGE_BYTES = 1_200_000
TERMS_MAX = 10
"""Of two relays while the broker is away for some seconds; without pauses it would be thousands."""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Iterator[EmbeddedServices]:
    with EmbeddedServices(data_dir=tmp_path_factory.mktemp("own"), cache_dir=cache_dir) as running:
        yield running


def stop_before_the_group_is_told(road: Road, member: subprocess.Popen[bytes]) -> int:
    """Stop a member after a COMMIT whose offsets the group does not have; return how many events were published.

    The group is told once a second, so a wave that follows on another mostly meets that moment; the group's own answer
    says whether it did.
    """
    for wave in range(WAVES_MAX):
        road.publish(ids(f"w{wave}_", WAVE))
        road.wait_for_events((wave + 1) * WAVE)
        member.send_signal(signal.SIGSTOP)
        if group_offsets(road) < (wave + 1) * WAVE:
            return (wave + 1) * WAVE
        member.send_signal(signal.SIGCONT)
    raise AssertionError("the group was told at once, each time")


def test_a_commit_of_offsets_that_comes_too_late_is_counted_and_stops_nobody(
    own: EmbeddedServices, fresh_database: str, tmp_path: Path
) -> None:
    """R42: the broker goes before the group is told, and when it is back another member has the partitions."""
    road = Road(own.kafka_bootstrap, fresh_database, tmp_path, group_protocol="classic")
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        first = stack.enter_context(road.processor(**QUICK_CLASSIC))
        [log] = tmp_path.glob("processor-*.log")
        done = stop_before_the_group_is_told(road, first)
        own.kafka.stop()
        joining = pool.submit(stack.enter_context, road.processor(**QUICK_CLASSIC))
        own.kafka.start()
        own.kafka.wait_ready()
        second = joining.result()
        road.publish(ids("x", WAVE))
        road.wait_for_events(done + WAVE)
        first.send_signal(signal.SIGCONT)
        wait_until(lambda: TOLD.search(log.read_text()), "the first tells what it has lost")
        road.publish(ids("y", WAVE))
        road.wait_for_events(done + 2 * WAVE)
        wait_until(lambda: group_offsets(road) == done + 2 * WAVE, "the group is told")
        wait_until(lambda: len(owners(road)) == 2, "both members have partitions")
        assert [member.poll() for member in (first, second)] == [None, None]
    assert set(road.states().values()) == {"processed"}
    assert len(road.rows("SELECT * FROM public.seen")) == len(set(road.outcome_ids())) == done + 2 * WAVE


def owners(road: Road) -> set[str]:
    return {row["owner"] for row in road.rows("SELECT owner FROM onceflow.progress")}


@pytest.mark.long
def test_bad_rows_stop_one_lane_until_a_person_decides_and_a_broker_that_is_away_stops_none(
    own: EmbeddedServices, fresh_database: str, tmp_path: Path
) -> None:
    """R50: two relays; of a hundred outcomes of one lane the third is too large and the seventh has headers that are none."""
    topic = create_topic(own.kafka_bootstrap, prefix="outcomes", partitions=3)
    lanes = Lanes(own.kafka_bootstrap, fresh_database, topic, count=3, folder=tmp_path)
    lanes.create()
    try:
        relays = [lanes.start_ready(owner) for owner in ("one", "two")]
        lanes.add(1, 10)
        wait_for(lanes.all_published, "the relays are at work")
        own.kafka.stop()
        lanes.add(1, 90)
        add_bad_rows(lanes)
        wait_for(lambda: "relay_term_ended" in lanes.log(), "the relay has noticed")
        assert [lanes.state(lane)[2] for lane in range(3)] == ["ok", "ok", "ok"], "the broker's fault is no row's"
        own.kafka.start()
        own.kafka.wait_ready()
        for seq in (3, 7):
            wait_for(lambda: lanes.state(0)[2] == "stopped:unpublishable", "the bad row is found")
            assert lanes.state(0)[1] == seq - 1
            assert f"sequence {seq}" in lanes.state(0)[3]
            with lanes.connect() as connection:
                assert withhold(connection, 0, seq=seq, code="refused") == "withheld"
            wait_for(lambda seq=seq: lanes.state(0)[1] >= seq, "the lane goes on")  # type: ignore[misc]
        wait_for(lanes.all_published, "everything is published")
        check_exactly_once(lanes, {0: 100, 1: 100, 2: 0})
        assert [relay.poll() for relay in relays] == [None, None]
        assert lanes.log().count("lane_stopped") == 2
        assert lanes.log().count("relay_term_ended") <= TERMS_MAX
    finally:
        lanes.stop_all()


def add_bad_rows(lanes: Lanes) -> None:
    lanes.add(0, 2)
    lanes.add(0, 1, value_bytes=TOO_LARGE_BYTES)
    with psycopg.connect(lanes.database_url) as connection:
        lanes.add(0, 97)
        connection.execute("UPDATE onceflow.outcome SET headers = '{\"team\": 7}' WHERE lane = 0 AND seq = 7")
