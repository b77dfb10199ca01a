"""A bad deploy opens the breaker; scattered failures do not."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from onceflow_processor.breaker import OPEN_FAILURES, REHEARSAL_SECONDS, WINDOW_EVENTS, Breaker
from onceflow_processor.records import Partition


def test_it_opens_when_most_recent_events_fail_alike() -> None:
    breaker = Breaker()
    answers = [breaker.failed("bill", "KeyError") for _ in range(WINDOW_EVENTS)]
    assert answers == [False] * (OPEN_FAILURES - 1) + [True] * (WINDOW_EVENTS - OPEN_FAILURES + 1)


def test_failures_of_several_kinds_or_handlers_do_not_add_up() -> None:
    breaker = Breaker()
    for number in range(WINDOW_EVENTS * 2):
        assert not breaker.failed("bill", f"kind {number % 2}")
        assert not breaker.failed(f"handler {number}", "KeyError")


def test_successes_between_keep_it_closed_and_are_forgotten_in_the_end() -> None:
    breaker = Breaker()
    for _ in range(WINDOW_EVENTS * 3):
        assert not breaker.failed("bill", "KeyError")
        breaker.went_well(["bill"])
    assert breaker.watched == {"bill"}
    for _ in range(WINDOW_EVENTS):
        breaker.went_well(["never failed", "bill"])
    assert breaker.watched == frozenset()


def opened_at(breaker: Breaker, ends: Iterable[bool]) -> int | None:
    """The first event at which it opens, when these are the ends of a handler's events in their order."""
    for number, well in enumerate(ends):
        if well:
            breaker.went_well(["bill"])
        elif breaker.failed("bill", "KeyError"):
            return number
    return None


@pytest.mark.parametrize("seed", range(50))
def test_a_thousand_events_with_one_percent_random_failures_do_not_open_it(seed: int) -> None:
    dice = random.Random(seed)
    assert opened_at(Breaker(), [dice.random() >= 0.01 for _ in range(1000)]) is None


def test_a_thousand_events_that_fail_alike_open_it() -> None:
    assert opened_at(Breaker(), [False] * 1000) == OPEN_FAILURES - 1
    assert opened_at(Breaker(), [True] * 500 + [False] * 500) == 500 + OPEN_FAILURES - 1


def test_what_fails_for_the_most_part_opens_it_too() -> None:
    nine_of_ten = [number % 10 == 9 for number in range(1000)]
    assert opened_at(Breaker(), nine_of_ten) == 16
    half = [number % 2 == 0 for number in range(1000)]
    assert opened_at(Breaker(), half) is None


def test_events_behind_are_rehearsed_after_a_while_and_then_as_often() -> None:
    breaker, first, second = Breaker(), Partition("events", 0), Partition("events", 1)
    asked = [breaker.rehearsal_due("bill", first, now=now) for now in (5, 64.9, 65, 65.1, 124.9, 125)]
    assert REHEARSAL_SECONDS == 60
    assert asked == [False, False, True, False, False, True]
    assert not breaker.rehearsal_due("bill", second, now=125), "each partition has waited by itself"
    assert not breaker.rehearsal_due("ship", first, now=125)


def test_a_handler_that_is_forgotten_begins_to_wait_anew() -> None:
    breaker, place = Breaker(), Partition("events", 0)
    breaker.failed("bill", "KeyError")
    breaker.rehearsal_due("bill", place, now=0)
    for _ in range(WINDOW_EVENTS):
        breaker.went_well(["bill"])
    assert not breaker.rehearsal_due("bill", place, now=100)
