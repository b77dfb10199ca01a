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
from confluent_kafka import Consumer, TopicPartition

from tests.processor.processor_process import MakeRoad, Road, end, ids, wait_until

EVENTS = 3_000
PAGE = 500
ROUNDS = 3
ROUND_SECONDS = 2.0
BATCH_RECORDS = 25
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


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_workers_that_come_and_go_every_two_seconds_do_everything_once(make_road: MakeRoad, protocol: str) -> None:
    """R41: a member that is killed costs its batch another run; those that join or are stopped cost nothing."""
    work = Work(make_road(group_protocol=protocol, partitions=6))
    events = ids("a", EVENTS)
    choice = random.Random(1)
    for page in range(0, EVENTS, PAGE):
        work.road.publish(events[page : page + PAGE], work_ms=choice.randrange(3))
    killed = 0
    with ExitStack() as stack:
        members = [stack.enter_context(work.member()) for _ in range(2)]
        for number in range(ROUNDS):
            ends = time.monotonic() + ROUND_SECONDS
            members.append(stack.enter_context(work.member()))
            # A round ends at a moment of the clock, whatever the members are at then: that is the fault.
            wait_until(partial(over, ends), "the round is over")
            leaving = members.pop(0)
            if number % 2:
                leaving.kill()
                killed += 1
            else:
                assert end(leaving) == 0
        work.road.wait_for_events(EVENTS)
        wait_until(lambda: group_offsets(work.road) == EVENTS, "lag tools are told, though nothing new comes")
        assert [end(member) for member in members] == [0, 0]
    work.check_once(set(events))
    assert sum(work.runs().values()) - EVENTS <= killed * BATCH_RECORDS
