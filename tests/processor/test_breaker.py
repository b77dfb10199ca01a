"""A bad deploy opens the breaker; scattered failures do not."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from onceflow_processor.breaker import OPEN_FAILURES, WINDOW_EVENTS, Breaker


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
