"""How long markers and outcomes must be kept: values in, values out.

Rule: a marker outlives every record by which its event can come again.  An event can come again for 30 days (Stripe's own list,
and resends by hand reach so far back), each time with a new time of receipt; the record of that last time lies in its topic
for the topic's retention; the margin is for clocks and for segments that Kafka deletes late.

    first receipt                      last receipt                                 nothing can bring it again
    |------ Stripe's 30 days ----------|------ retention of the topic, horizon -----|-- margin --| marker goes
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

STRIPE_DAYS: Final = 30
MARGIN_DAYS_DEFAULT: Final = 7
QUARANTINE_DAYS_DEFAULT: Final = 365
KEEP_DAYS_MIN: Final = 32
"""The functions in the database delete nothing younger, whatever they are asked; a test compares."""
MS_PER_DAY: Final = 86_400_000
RETENTION_UNLIMITED_MS: Final = -1


@dataclass(frozen=True, slots=True)
class TopicAge:
    """How long a topic keeps its records; ``days`` is None for ever."""

    name: str
    days: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the settings say.

    Args:
        horizon_days: older events are refused by the processor.
        markers_days: None: as long as is needed.
        outcomes_days: None: as long as is needed for reruns.
        margin_days: added to what is needed.
        quarantine_days: from the decision about a quarantined record.
    """

    horizon_days: int
    markers_days: int | None = None
    outcomes_days: int | None = None
    margin_days: int = MARGIN_DAYS_DEFAULT
    quarantine_days: int = QUARANTINE_DAYS_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """How long rows are kept, in days; None for ever.  ``faults`` are settings that are too short, as sentences."""

    markers_days: int | None
    outcomes_days: int | None
    faults: tuple[str, ...]


def topic_age(name: str, *, retention_ms: int, cleanup_policy: str) -> TopicAge:
    """Return how long a topic keeps records; one that is only compacted keeps the last of each key for ever."""
    if retention_ms == RETENTION_UNLIMITED_MS or "delete" not in cleanup_policy:
        return TopicAge(name, None)
    return TopicAge(name, retention_ms / MS_PER_DAY)


def decide(wishes: Wishes, *, events: Sequence[TopicAge], outcomes: TopicAge | None) -> Kept:
    """Say how long rows are kept.

    Args:
        wishes: the settings.
        events: of every input topic.
        outcomes: of the outcome topic; None where only the settings are looked at.
    """
    needed = needed_days(wishes, events)
    faults = [*_too_short(wishes, events)]
    markers = needed if wishes.markers_days is None else wishes.markers_days
    published = None if outcomes is None or outcomes.days is None else math.ceil(outcomes.days) + wishes.margin_days
    if wishes.outcomes_days is None:
        kept = None if markers is None or (outcomes is not None and published is None) else max(markers, published or 0)
        return Kept(markers_days=markers, outcomes_days=kept, faults=tuple(faults))
    if outcomes is not None and (published is None or wishes.outcomes_days < published):
        faults.append(
            f"retention.outcomes_days is {wishes.outcomes_days}, but {outcomes.name} keeps its records {_days(outcomes)}: "
            f"a lost end of the topic could not be published again; {_good(published)}"
        )
    return Kept(markers_days=markers, outcomes_days=wishes.outcomes_days, faults=tuple(faults))


def needed_days(wishes: Wishes, events: Iterable[TopicAge]) -> int | None:
    """Return for how many days a marker is needed; None for ever."""
    kept = [float(wishes.horizon_days)]
    for topic in events:
        if topic.days is None:
            return None
        kept.append(topic.days)
    return max(KEEP_DAYS_MIN, math.ceil(max(kept)) + STRIPE_DAYS + wishes.margin_days)


def refused_before(gone_before: datetime | None) -> datetime | None:
    """Return the time of receipt before which a record may be of an event whose row is gone; None when none is.

    Args:
        gone_before: rows from before this time may be gone.

    The row has the first receipt, a record that comes later may have one of the 30 days after it.
    """
    return None if gone_before is None else gone_before + timedelta(days=STRIPE_DAYS)


def _too_short(wishes: Wishes, events: Sequence[TopicAge]) -> Iterable[str]:
    if wishes.markers_days is None:
        return
    horizon = needed_days(wishes, ())
    assert horizon is not None, "the horizon is a number of days"
    # One good value for all lines: that of one alone would only bring up the next.
    good = _good(needed_days(wishes, events))
    if wishes.markers_days < horizon:
        yield (
            f"retention.markers_days is {wishes.markers_days}, but processor.horizon_days = {wishes.horizon_days} lets records in "
            f"of events that Stripe may send again for {STRIPE_DAYS} days before, and retention.margin_days is "
            f"{wishes.margin_days}: one could take effect twice; {good}"
        )
    for topic in events:
        needed = needed_days(wishes, [topic])
        if needed is None or wishes.markers_days < needed:
            yield (
                f"retention.markers_days is {wishes.markers_days}, but {topic.name} keeps its records {_days(topic)}, and Stripe "
                f"may send an event again for {STRIPE_DAYS} days before: a record could outlive its marker; {good}"
            )


def _days(topic: TopicAge) -> str:
    return "for ever" if topic.days is None else f"{topic.days:g} days"


def _good(days: int | None) -> str:
    return "leave it unset, and they are kept for ever" if days is None else f"a good value is {days}"
