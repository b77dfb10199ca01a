"""How long rows are kept, by hand."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from onceflow_processor.retention.needs import (
    KEEP_DAYS_MIN,
    TopicAge,
    Wishes,
    decide,
    needed_days,
    refused_before,
    topic_age,
)
from onceflow_schemas.sql import migrations

EVENTS, OUTCOMES = TopicAge("events", 35.0), TopicAge("outcomes", 35.0)
FOR_EVER = TopicAge("bus", None)


@pytest.mark.parametrize(
    ("retention_ms", "policy", "days"),
    [
        (3_024_000_000, "delete", 35.0),
        (3_600_000, "delete", 1 / 24),
        (-1, "delete", None),
        (3_024_000_000, "compact", None),
        (3_024_000_000, "compact,delete", 35.0),
    ],
)
def test_how_long_a_topic_keeps_records(retention_ms: int, policy: str, days: float | None) -> None:
    assert topic_age("t", retention_ms=retention_ms, cleanup_policy=policy) == TopicAge("t", days)


def test_a_marker_outlives_the_last_record_that_can_bring_its_event_again() -> None:
    """Received on day 0, sent again by Stripe on day 30, in the topic until day 65: seven more for the clocks."""
    assert needed_days(Wishes(horizon_days=35), [EVENTS]) == 72
    assert needed_days(Wishes(horizon_days=35), [EVENTS, TopicAge("bus", 90.0)]) == 127
    assert needed_days(Wishes(horizon_days=90), [EVENTS]) == 127
    assert needed_days(Wishes(horizon_days=35), [TopicAge("bus", 35.2)]) == 73
    assert needed_days(Wishes(horizon_days=1, margin_days=1), []) == 32
    assert needed_days(Wishes(horizon_days=35), [EVENTS, FOR_EVER]) is None


def test_unset_means_as_long_as_is_needed() -> None:
    kept = decide(Wishes(horizon_days=35), events=[EVENTS], outcomes=OUTCOMES)
    assert (kept.markers_days, kept.outcomes_days, kept.faults) == (72, 72, ())
    kept = decide(Wishes(horizon_days=35), events=[EVENTS], outcomes=TopicAge("outcomes", 100.0))
    assert (kept.markers_days, kept.outcomes_days, kept.faults) == (72, 107, ())
    kept = decide(Wishes(horizon_days=35), events=[EVENTS], outcomes=TopicAge("outcomes", None))
    assert (kept.markers_days, kept.outcomes_days, kept.faults) == (72, None, ())


def test_a_topic_without_an_end_keeps_its_markers_for_ever() -> None:
    kept = decide(Wishes(horizon_days=35), events=[EVENTS, FOR_EVER], outcomes=OUTCOMES)
    assert (kept.markers_days, kept.outcomes_days, kept.faults) == (None, None, ())
    kept = decide(Wishes(horizon_days=35, outcomes_days=42), events=[FOR_EVER], outcomes=OUTCOMES)
    assert (kept.markers_days, kept.outcomes_days, kept.faults) == (None, 42, ())


def test_longer_than_needed_is_fine() -> None:
    kept = decide(Wishes(horizon_days=35, markers_days=400, outcomes_days=90), events=[EVENTS], outcomes=OUTCOMES)
    assert (kept.markers_days, kept.outcomes_days, kept.faults) == (400, 90, ())


def test_each_setting_that_is_too_short_is_named_with_a_good_value() -> None:
    wishes = Wishes(horizon_days=36, markers_days=72, outcomes_days=41)
    kept = decide(wishes, events=[TopicAge("a", 39.0), TopicAge("b", 7.0)], outcomes=OUTCOMES)
    assert kept.faults == (
        (
            "retention.markers_days is 72, but processor.horizon_days = 36 lets records in of events that Stripe may send again "
            "for 30 days before, and retention.margin_days is 7: one could take effect twice; a good value is 76"
        ),
        (
            "retention.markers_days is 72, but a keeps its records 39 days, and Stripe may send an event again for 30 days before: "
            "a record could outlive its marker; a good value is 76"
        ),
        (
            "retention.markers_days is 72, but b keeps its records 7 days, and Stripe may send an event again for 30 days before: "
            "a record could outlive its marker; a good value is 76"
        ),
        (
            "retention.outcomes_days is 41, but outcomes keeps its records 35 days: a lost end of the topic could not be published "
            "again; a good value is 42"
        ),
    )
    [for_ever] = decide(Wishes(horizon_days=35, markers_days=72), events=[FOR_EVER], outcomes=OUTCOMES).faults
    assert for_ever == (
        "retention.markers_days is 72, but bus keeps its records for ever, and Stripe may send an event again for 30 days before: "
        "a record could outlive its marker; leave it unset, and they are kept for ever"
    )
    wishes = Wishes(horizon_days=35, outcomes_days=100)
    assert decide(wishes, events=[EVENTS], outcomes=TopicAge("outcomes", None)).faults == (
        (
            "retention.outcomes_days is 100, but outcomes keeps its records for ever: a lost end of the topic could not be published "
            "again; leave it unset, and they are kept for ever"
        ),
    )


def test_what_is_refused_follows_from_what_is_gone() -> None:
    """A marker holds the first receipt; a record that came 30 days after it may be of an event whose marker is gone."""
    assert refused_before(None) is None
    assert refused_before(datetime(2026, 1, 1, tzinfo=UTC)) == datetime(2026, 1, 31, tzinfo=UTC)


def test_the_floor_is_that_of_the_database() -> None:
    [migration] = [one for one in migrations() if one.name == "retention"]
    assert f"keep_days < {KEEP_DAYS_MIN}" in migration.up
