"""The settings of the reconciler: how often it looks, how far back, and how much of Stripe's limit it may take."""

from __future__ import annotations

from pydantic import Field

from onceflow.settings_section import Seconds, Section


class ReconcilerSettings(Section):
    """The reconciler: what was missed, stuck, unknown or drifted."""

    cycle_seconds: Seconds = Field(60.0, le=86_400, description="From one look at an account to the next.")
    requests_per_second: int | None = Field(
        None,
        ge=1,
        le=1_000,
        examples=[20],
        description="Reads at Stripe for each account, below what live traffic takes; unset: 20 in live mode, 10 in test mode.",
    )
    overlap_minutes: int = Field(
        10, ge=1, le=1_440, description="Read again before what was read last: events become visible late."
    )
    grace_seconds: int = Field(
        120, ge=1, le=86_400, description="Younger events are not judged yet: their webhook may be on its way."
    )
    first_hours: int = Field(72, ge=1, le=719, description="How far back the first look at an account goes.")
    ledger_minutes: int = Field(
        60, ge=1, le=1_440, description="From one look at the last hours of topics and tables to the next."
    )
    lease_seconds: Seconds = Field(
        30.0, ge=5, le=300, description="A reconciler that died is waited for as long as this."
    )
