"""A bad deploy opens the breaker; scattered failures do not."""

from __future__ import annotations

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
        breaker.succeeded("bill", 1)
    assert breaker.tracked() == {"bill"}
    breaker.succeeded("bill", WINDOW_EVENTS * 5)
    breaker.succeeded("never failed", 1)
    assert breaker.tracked() == frozenset()
