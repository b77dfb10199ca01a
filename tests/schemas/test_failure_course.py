"""What is done about a failure: by SQLSTATE, by class, and how long a retry waits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow_schemas.failure_course import CLASSES, SQLSTATES, Course, RetryRules, course_of_class, course_of_sqlstate


@pytest.mark.parametrize(
    ("sqlstate", "course"),
    [
        ("OF001", Course.TAKE_OVER),
        ("OF007", Course.TAKE_OVER),
        ("OF002", Course.QUARANTINE),
        ("OF004", Course.PAUSE),
        ("40P01", Course.RERUN),
        ("57014", Course.RERUN),
        ("57P01", Course.PAUSE),
        ("53300", Course.PAUSE),
        ("08006", Course.PAUSE),
        ("XX001", Course.PAUSE),
        ("25006", Course.PAUSE),
        ("25P03", Course.RERUN),
        ("25P02", Course.QUARANTINE),
        ("42P05", Course.STOP),
        ("26000", Course.STOP),
        ("42P01", Course.QUARANTINE),
        ("23505", Course.QUARANTINE),
        ("22P05", Course.QUARANTINE),
        ("", Course.QUARANTINE),
    ],
)
def test_each_state_has_its_course(sqlstate: str, course: Course) -> None:
    assert course_of_sqlstate(sqlstate) is course


@pytest.mark.parametrize(
    ("names", "course"),
    [
        (["builtins.ConnectionResetError", "builtins.ConnectionError", "builtins.OSError"], Course.PARK),
        (["builtins.TimeoutError", "builtins.OSError"], Course.PARK),
        (["builtins.OSError", "builtins.Exception"], Course.QUARANTINE),
        (["requests.exceptions.ReadTimeout", "requests.exceptions.Timeout"], Course.PARK),
        (["urllib3.exceptions.MaxRetryError", "urllib3.exceptions.HTTPError"], Course.PARK),
        (["httpx.ConnectError", "httpx.NetworkError", "httpx.TransportError"], Course.PARK),
        (["stripe._error.RateLimitError", "stripe._error.StripeError"], Course.PARK),
        (["stripe._error.CardError", "stripe._error.StripeError"], Course.QUARANTINE),
        (["mine.ConnectionError", "builtins.Exception"], Course.QUARANTINE),
        (["builtins.ValueError"], Course.QUARANTINE),
        ([], Course.QUARANTINE),
    ],
)
def test_each_class_has_its_course(names: list[str], course: Course) -> None:
    assert course_of_class(names) is course


def test_no_row_stands_twice() -> None:
    matches = [row.match for row in (*SQLSTATES, *CLASSES)]
    assert len(matches) == len(set(matches))


RULES = RetryRules(wait_seconds_min=2.0, wait_seconds_max=100.0, attempts_max=5)


@pytest.mark.parametrize(
    ("attempts", "share", "seconds"),
    [
        (0, 0.0, 2.0),
        (0, 1.0, 4.0),
        (1, 0.5, 5.0),
        (3, 1.0, 32.0),
        (5, 1.0, 100.0),
        (10_000, 1.0, 100.0),
        (10_000, 0.0, 2.0),
    ],
)
def test_the_span_doubles_up_to_the_maximum(attempts: int, share: float, seconds: float) -> None:
    assert RULES.wait_seconds(attempts, share=share) == seconds


def test_what_a_handler_asks_for_is_followed() -> None:
    assert RULES.wait_seconds(3, share=0.7, asked_seconds=0.0) == 0.0
    assert RULES.wait_seconds(3, share=0.7, asked_seconds=86_400.0) == 86_400.0


@given(attempts=st.integers(0, 10**6), share=st.floats(0, 1), least=st.floats(0.001, 1e4), most=st.floats(0.001, 1e6))
def test_a_wait_is_never_outside_its_bounds(attempts: int, share: float, least: float, most: float) -> None:
    seconds = RetryRules(least, most, 3).wait_seconds(attempts, share=share)
    assert math.isfinite(seconds)
    assert least <= seconds <= max(least, most) * 1.000001
