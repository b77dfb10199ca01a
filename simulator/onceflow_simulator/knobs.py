"""What a test may set on the whole simulator: latency, lags, limits, and what Stripe's documents leave open.

Rule: nothing that Stripe does not publish is a constant here; each such point is a knob with a default.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

KEY_LIFE_SECONDS = 24 * 3600.0
EVENT_HORIZON_SECONDS = 30 * 24 * 3600.0
RETRY_SECONDS = (60.0, 300.0, 1800.0, 7200.0, 18000.0, *([36000.0] * 6))
"""Stripe retries for three days with growing pauses, and does not publish them."""

Share = Field(default=0.0, ge=0.0, le=1.0)
Seconds = Field(default=0.0, ge=0.0)


class Knobs(BaseModel):
    """The settings, all of which ``POST /_sim/knobs`` may change while requests run. Seconds are of the simulator's clock."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    latency_ms: float = Field(default=0.0, ge=0.0, description="real milliseconds before each request is executed")
    answer_ms: float = Field(default=0.0, ge=0.0, description="real milliseconds between execution and answer")
    key_life_seconds: float = Field(default=KEY_LIFE_SECONDS, ge=0.0)
    key_compares_version: bool = False
    strict_keys: bool = False
    accounts_must_exist: bool = False

    account_per_second: float | None = Field(default=None, gt=0.0)
    endpoint_per_second: float | None = Field(default=None, gt=0.0)
    search_per_second: float | None = Field(default=None, gt=0.0)
    account_concurrency: int | None = Field(default=None, ge=1)
    endpoint_concurrency: int | None = Field(default=None, ge=1)
    updates_per_hour: int | None = Field(default=None, ge=1)
    burst_seconds: float = Field(default=1.0, gt=0.0)
    retry_after: bool = False

    event_horizon_seconds: float = Field(default=EVENT_HORIZON_SECONDS, gt=0.0)
    event_lag_seconds: float = Seconds
    event_lag_share: float = Field(default=1.0, ge=0.0, le=1.0)
    event_twin_share: float = Share
    expired_cursor: Literal["refused", "empty"] = "refused"
    search_lag_seconds: float = Seconds
    search_refused: bool = False

    processing_seconds: float = Field(default=5.0, ge=0.0)
    refund_pending_seconds: float | None = Field(default=None, ge=0.0)
    refund_fails_after_seconds: float = Field(default=60.0, ge=0.0)
    amount_to_confirm: Literal["checked", "ignored"] = "checked"
    off_session_authentication: Literal["declined", "requires_action"] = "declined"
    metadata_to_charge: bool = True
    refund_too_large_code: str | None = None
    confirms_max: int = Field(default=100, ge=1)

    retry_seconds: tuple[float, ...] = RETRY_SECONDS
    delivery_timeout_seconds: float = Field(default=20.0, gt=0.0, description="real seconds for one delivery")
    should_retry: dict[int, Literal["true", "false"]] = {}
