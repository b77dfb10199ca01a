"""The settings of retention: how long rows stay that nobody needs any more."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from onceflow.settings_section import Section
from onceflow_processor.retention.needs import KEEP_DAYS_MIN, MARGIN_DAYS_DEFAULT, QUARANTINE_DAYS_DEFAULT, Wishes

FINDINGS_DAYS_DEFAULT: Final = 365


class RetentionSettings(Section):
    """How long rows are kept; the relay, or the reconciler, deletes what is older."""

    markers_days: int | None = Field(
        None,
        ge=KEEP_DAYS_MIN,
        le=36_500,
        examples=[72],
        description="Markers of events; unset: the longest retention of an input topic or the horizon, Stripe's 30 days and the margin.",
    )
    outcomes_days: int | None = Field(
        None,
        ge=KEEP_DAYS_MIN,
        le=36_500,
        examples=[72],
        description="Published outcomes; unset: as long as markers, and longer than the outcome topic keeps them.",
    )
    margin_days: int = Field(
        MARGIN_DAYS_DEFAULT, ge=1, le=365, description="Added to what is needed, for clocks and late deletion in Kafka."
    )

    quarantine_days: int = Field(
        QUARANTINE_DAYS_DEFAULT,
        ge=KEEP_DAYS_MIN,
        le=36_500,
        description="Quarantined records, from the decision about them; those without one stay for ever.",
    )

    findings_days: int = Field(
        FINDINGS_DAYS_DEFAULT,
        ge=KEEP_DAYS_MIN,
        le=36_500,
        description="Findings that are healed, and accepted ones of which nothing is left; the reconciler deletes them. Open ones stay.",
    )

    def wishes(self, *, horizon_days: int) -> Wishes:
        """Return what the duty is told; the horizon is ``processor.horizon_days``."""
        return Wishes(
            horizon_days=horizon_days,
            markers_days=self.markers_days,
            outcomes_days=self.outcomes_days,
            margin_days=self.margin_days,
            quarantine_days=self.quarantine_days,
        )
