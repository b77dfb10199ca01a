"""Times: one text per instant, and no other spelling is read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow_schemas.times import format_time, parse_time
from tests.schemas.stripe_bodies import CASES


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00.000000Z"),
        (datetime(2026, 2, 28, 23, 59, 59, 999_999, tzinfo=UTC), "2026-02-28T23:59:59.999999Z"),
        (datetime(2026, 1, 1, 1, 30, tzinfo=timezone(timedelta(hours=2))), "2025-12-31T23:30:00.000000Z"),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00.000000Z"),
    ],
)
def test_the_form(moment: datetime, text: str) -> None:
    assert format_time(moment) == text
    assert parse_time(text) == moment


@CASES
@given(
    st.datetimes(
        min_value=datetime(1, 1, 3),  # noqa: DTZ001 - hypothesis takes bounds without a zone.
        max_value=datetime(9999, 12, 29),  # noqa: DTZ001
        timezones=st.timezones(),
    )
)
def test_every_instant_comes_back(moment: datetime) -> None:
    read = parse_time(format_time(moment))
    # Compared in UTC: an hour that a clock shows twice is unequal to every other time, by PEP 495.
    assert read == moment.astimezone(UTC)
    assert read.tzinfo is UTC


@CASES
@given(st.text(max_size=30) | st.from_regex(r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\Z"))
def test_what_is_read_is_what_would_be_written(text: str) -> None:
    try:
        moment = parse_time(text)
    except ValueError:
        return
    assert format_time(moment) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00.000Z",
        "2026-01-01T00:00:00.000000+00:00",
        "2026-01-01T00:00:00.000000z",
        "2026-01-01t00:00:00.000000Z",
        "2026-01-01 00:00:00.000000Z",
        "2026-01-01T00:00:00,000000Z",
        "2026-01-01T00:00:00.0000000Z",
        "2026-01-01T24:00:00.000000Z",
        "2026-01-01T23:59:60.000000Z",
        "2026-02-29T00:00:00.000000Z",
        "2026-13-01T00:00:00.000000Z",
        "0000-01-01T00:00:00.000000Z",
        "20260-1-01T00:00:00.000000Z",
        "2026-W01-1T00:00:00.000000Z",
        "2026-01-01T00:00:00.00000\u0660Z",
        "2026-01-01T00:00:00.000000Z\n",
    ],
)
def test_other_spellings_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_time(text)


def test_a_time_without_a_zone_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        format_time(datetime(2026, 1, 1))  # noqa: DTZ001 - the mistake itself.
