"""Members of the group come and go, are killed and are slow: no effect happens twice, and little is read again."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.processor.processor_process import MakeRoad, Road, end, ids, wait_until

EVENTS = 3_000
PAGE = 500
ROUNDS = 3
KILLED_IN = (1, 2)
ROUND_SECONDS = 2.0
SLOW_OF_PAGE = 10
BATCH_RECORDS = 25
WAVE = 20
QUICK_CLASSIC = {
    "ONCEFLOW_KAFKA_CONSUMER_SESSION_TIMEOUT_MS": "2000",
    "ONCEFLOW_KAFKA_CONSUMER_HEARTBEAT_INTERVAL_MS": "300",
}


class Work:
    """A road whose handlers take their time and note each run."""

    def __init__(self, road: Road, **settings: str) -> None:
        self.road = road
        self._runs = road.folder / "runs.txt"
        self._runs.touch()
        self._settings = {
            "ONCEFLOW_PROCESSOR_HANDLERS": "tests.processor.working_handlers:handlers",
            "ONCEFLOW_PROCESSOR_BATCH_RECORDS_MAX": str(BATCH_RECORDS),
            "WORK_LOG": str(self._runs),
            **(QUICK_CLASSIC if road.group_protocol == "classic" else {}),
            **settings,
        }

    @contextmanager
    def member(self) -> Iterator[subprocess.Popen[bytes]]:
        with self.road.processor(**self._settings) as process:
            yield process

    def runs(self) -> Counter[str]:
        """How often the handler of each event was run, committed or not."""
        return Counter(line.split()[0] for line in self._runs.read_text().splitlines())

    def check_once(self, expected: set[str]) -> None:
        """Each event has its state, its row and its outcome, once."""
        assert self.road.states() == dict.fromkeys(expected, "processed")
        assert Counter(row["event_id"] for row in self.road.rows("SELECT event_id FROM public.seen")) == Counter(
            expected
        )
        assert len(self.road.outcome_ids()) == len(set(self.road.outcome_ids())) == len(expected)


def over(end_at: float) -> bool:
    return time.monotonic() >= end_at


def group_offsets(road: Road) -> int:
    """How far the group's offsets are, over all partitions."""
    consumer = Consumer({"bootstrap.servers": road.bootstrap, "group.id": f"onceflow.{road.deployment}.processor"})
    try:
        places = [TopicPartition(road.events, number) for number in range(road.partitions)]
        return sum(max(place.offset, 0) for place in consumer.committed(places, timeout=20))
    finally:
        consumer.close()


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_workers_that_come_and_go_every_two_seconds_do_everything_once(make_road: MakeRoad, protocol: str) -> None:
    """R41: a member that is killed costs its batch another run; those that join or are stopped cost nothing.

    One event in fifty takes 30 to 200 ms.  Eager assignors need no case: a start with one is refused
    (tests/console/test_kafka_settings.py::test_unsafe_values_are_refused_with_the_reason).
    """
    work = Work(make_road(group_protocol=protocol, partitions=6))
    events = ids("a", EVENTS)
    choice = random.Random(1)
    for page in range(0, EVENTS, PAGE):
        work.road.publish(events[page : page + SLOW_OF_PAGE], work_ms=choice.randrange(30, 201))
        work.road.publish(events[page + SLOW_OF_PAGE : page + PAGE], work_ms=choice.randrange(3))
    killed = 0
    with ExitStack() as stack:
        members = [stack.enter_context(work.member()) for _ in range(2)]
        for number in range(ROUNDS):
            ends = time.monotonic() + ROUND_SECONDS
            members.append(stack.enter_context(work.member()))
            # A round ends at a moment of the clock, whatever the members are at then: that is the fault.
            wait_until(partial(over, ends), "the round is over")
            leaving = members.pop(0)
            if number in KILLED_IN:
                leaving.kill()
                killed += 1
            else:
                assert end(leaving) == 0
        work.road.wait_for_events(EVENTS)
        wait_until(lambda: group_offsets(work.road) == EVENTS, "lag tools are told, though nothing new comes")
        assert [end(member) for member in members] == [0, 0]
    work.check_once(set(events))
    assert sum(work.runs().values()) - EVENTS <= killed * BATCH_RECORDS


def test_group_offsets_that_are_gone_or_wrong_are_not_followed(make_road: MakeRoad) -> None:
    """R47: nothing is skipped and nothing read again, whatever somebody does to the offsets of the group."""
    work = Work(make_road(partitions=1))
    road, done = work.road, 0
    admin = AdminClient({"bootstrap.servers": road.bootstrap})
    group = f"onceflow.{road.deployment}.processor"
    for number, offset in enumerate([None, 1_000]):
        road.publish(ids(f"w{number}_", WAVE), work_ms=0)
        done += WAVE
        with work.member() as member:
            road.wait_for_events(done)
            wait_until(lambda done=done: group_offsets(road) == done, "the group is told")
            assert end(member) == 0
        if offset is None:
            admin.delete_consumer_groups([group])[group].result(20)
        else:
            place = ConsumerGroupTopicPartitions(group, [TopicPartition(road.events, 0, offset)])
            admin.alter_consumer_group_offsets([place])[group].result(20)
    road.publish(ids("last", WAVE), work_ms=0)
    with work.member():
        road.wait_for_events(done + WAVE)
    assert set(work.runs().values()) == {1}
    assert len(work.runs()) == done + WAVE


@pytest.mark.long
def test_work_longer_than_the_poll_interval_stays_with_its_worker(make_road: MakeRoad) -> None:
    """R43: the other worker does not get the partition and then loses it in turn; the slow event is run once.

    With the classic protocol, because the client takes no interval below the session of the other one.
    """
    settings = {"ONCEFLOW_KAFKA_CONSUMER_MAX_POLL_INTERVAL_MS": "3000"}
    work = Work(make_road(partitions=2, group_protocol="classic"), **settings)
    with work.member(), work.member():
        work.road.publish(ids("a", WAVE), work_ms=0)
        work.road.wait_for_events(WAVE)
        wait_until(lambda: len({owner for owner, _ in holders(work.road)}) == 2, "each worker has a partition")
        before = holders(work.road)
        work.road.publish(["evt_slow"], partition=0, work_ms=6_000)
        # A batch of its own: one that holds more is cut behind the event that took all its time, which is then run again.
        wait_until(lambda: "evt_slow" in work.runs(), "the slow event is at work")
        work.road.publish(ids("behind", WAVE), partition=0, work_ms=0)
        work.road.publish(ids("beside", WAVE), partition=1, work_ms=0)
        wait_until(lambda: set(ids("beside", WAVE)) <= set(work.road.states()), "the other partition goes on")
        assert "evt_slow" not in work.road.states()
        work.road.wait_for_events(3 * WAVE + 1)
        assert holders(work.road) == before
    # The first wave only shares the partitions out: a member that joins late on a busy machine may cost it a run.
    runs = Counter({event: count for event, count in work.runs().items() if not event.startswith("evt_a")})
    assert {event: count for event, count in runs.items() if count > 1} == {}
    assert len(runs) == 2 * WAVE + 1


def holders(road: Road) -> list[tuple[str, int]]:
    """Owner and epoch of each partition."""
    rows = road.rows("SELECT owner, epoch FROM onceflow.progress ORDER BY partition")
    return [(row["owner"], row["epoch"]) for row in rows]
