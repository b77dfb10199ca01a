"""What waits in front of the processor: how much of it keeps a look from judging, and in which order what was missed joins it."""

from __future__ import annotations

from contextlib import closing

import pytest

from onceflow_processor.log_reader import LogReader
from onceflow_processor.records import Partition
from onceflow_reconciler import known_events
from tests.reconciler.conftest import PLATFORM, MakeReconcilerRoad, ReconcilerRoad
from tests.reconciler.test_long_looks import tell
from tests.reconciler.test_missed_events import seen


@pytest.fixture
def one_partition(make_road: MakeReconcilerRoad) -> ReconcilerRoad:
    return make_road(partitions=1)


def in_topic(road: ReconcilerRoad) -> list[str]:
    """The events' ids as they stand in the topic, record by record."""
    partition = Partition(road.events, 0)
    with LogReader({"bootstrap.servers": road.bootstrap}, group="test.reader", deadline_seconds=30) as reader:
        bounds = reader.bounds(partition)
        with closing(reader.records(partition, bounds.low, end=bounds.high)) as records:
            return [(dict(record.headers)["ce_id"] or b"").decode() for record in records]


def test_events_are_brought_oldest_first(one_partition: ReconcilerRoad) -> None:
    """Also over the pages of the list, which begins with the newest, and over the stretches that a look reads."""
    road = one_partition
    now = int(road.stripe.state()["now"])
    for age in (6000, 4500, 50):
        tell(road, 1, created=now - age)
    made = road.customers(130)
    road.stripe.advance(5)
    assert road.once()[PLATFORM]["brought"] == 133
    assert in_topic(road) == [*(f"evt_{now - age}_0" for age in (6000, 4500, 50)), *made]


def test_too_long_a_backlog_is_not_judged_and_keeps_the_cursor_where_it_is(
    one_partition: ReconcilerRoad, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether an event waits among too many records nobody knows: it is neither missed, nor brought, nor passed."""
    road = one_partition
    waiting = road.customers(6)
    for event_id in waiting:
        road.deliver(event_id)
    missed = road.customers(2)
    road.stripe.advance(5)
    listed_from = int(road.stripe.state()["now"]) - 60
    monkeypatch.setattr(known_events, "BACKLOG_RECORDS_MAX", 5)
    for _ in range(2):
        told = road.once(status=1)[PLATFORM]
        assert (told["waits"], told["listed"], told["missed"], told["brought"]) == ("backlog", 8, 0, 0)
        assert road.findings() == []
        assert road.cursor().timestamp() < listed_from
    assert in_topic(road) == waiting
    # The processor has done some of it: now it can be looked through.
    with road.processor():
        road.wait_for_events(6)
    told = road.once()[PLATFORM]
    assert (told["waits"], told["missed"], told["brought"]) == (None, 2, 2)
    assert road.cursor().timestamp() > listed_from
    assert in_topic(road) == [*waiting, *missed]
    road.settle(8)
    assert seen(road) == dict.fromkeys([*waiting, *missed], 1)
