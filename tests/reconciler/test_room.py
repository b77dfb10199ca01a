"""What is brought leaves room for live events: the next portion waits for the processor, unless that stands still."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceflow_reconciler import event_cycle
from onceflow_reconciler.event_cycle import WAITING_MAX, EventCycle
from onceflow_reconciler.list_page import Listed
from onceflow_reconciler.slices import SliceRules

PORTIONS = 5


class Road:
    """Stands for topic, processor and clock: each wait lets the processor pass some records."""

    topic = "events"
    ends: dict[int, int]

    def __init__(self, *, passes: int, stops_at_wait: int | None = None) -> None:
        self.ends = {}
        self.brought = self.passed = self.waits = 0
        self.most_before_a_portion = 0
        self._passes = passes
        self._stops_at_wait = stops_at_wait

    def portions(self, *_: object, **__: object) -> Iterator[None]:
        for number in range(PORTIONS):
            if number:
                yield
            self.most_before_a_portion = max(self.most_before_a_portion, self.brought - self.passed)
            self.brought += WAITING_MAX

    def before(self, topic: str, _ends: object) -> int:
        assert topic == self.topic
        return self.brought - self.passed

    def wait(self, _seconds: float) -> bool:
        self.waits += 1
        self.passed = min(self.brought, self.passed + self._passes)
        return self.waits == self._stops_at_wait


def bring(road: Road, monkeypatch: pytest.MonkeyPatch) -> None:
    cycle = EventCycle(
        cast("Any", None),
        cast("Any", None),
        cast("Any", road),
        republisher=cast("Any", road),
        mode="test",
        rules=SliceRules(),
        first_seconds=1,
        check=lambda: None,
        wait=road.wait,
    )
    monkeypatch.setattr(event_cycle, "remedied", lambda *_, **__: None)
    monkeypatch.setattr(cycle, "_record", lambda _: [1])
    clock = iter(range(10**6))
    now = lambda: next(clock) * event_cycle.ROOM_SECONDS_MAX / 10  # noqa: E731
    monkeypatch.setattr(event_cycle, "time", SimpleNamespace(monotonic=now))
    for _ in cycle._bring("acct_1", [Listed("evt_1", 1, {})], event_cycle.Told()):
        pass
    assert road.brought == PORTIONS * WAITING_MAX


def test_a_portion_waits_until_little_is_left_of_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    road = Road(passes=1)
    bring(road, monkeypatch)
    assert road.most_before_a_portion <= WAITING_MAX
    # However slow the processor is: it is waited for as long as it gets ahead.
    assert road.waits == (PORTIONS - 2) * WAITING_MAX


def test_a_processor_that_stands_still_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    road = Road(passes=0)
    bring(road, monkeypatch)
    assert 0 < road.waits <= 20


def test_who_is_asked_to_stop_waits_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    road = Road(passes=1, stops_at_wait=3)
    bring(road, monkeypatch)
    assert road.waits == 3
