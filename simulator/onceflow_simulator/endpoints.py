"""Webhook endpoints: where events go, which ones, with which secrets, and what goes wrong on the way.

Rule: an endpoint is Stripe's object for the interface, with the simulator's knobs beside it.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from onceflow_simulator.knobs import Seconds, Share
from onceflow_simulator.world import Account, Json


class EndpointRequest(BaseModel):
    """What ``POST /_sim/webhooks`` takes. Seconds are of the simulator's clock; shares are 0 to 1.

    ``secrets`` are all in force: two of them are a secret that is being rolled. ``connect`` receives the events of connected
    accounts; ``thin`` sends the thin twin besides.
    """

    model_config = ConfigDict(extra="forbid")

    url: str
    secrets: list[str] = Field(min_length=1, max_length=8)
    types: list[str] = ["*"]
    api_version: str | None = None
    account: str | None = None
    livemode: bool = False
    connect: bool = False
    thin: bool = False
    snapshot: bool = True
    enabled: bool = True
    duplicate: float = Share
    drop: float = Share
    reorder: float = Share
    reorder_seconds: float = Field(default=1.0, ge=0.0)
    delay_seconds: float = Seconds
    retry_scale: float = Field(default=1.0, ge=0.0)
    retries_max: int = Field(default=16, ge=0)


@dataclass
class Endpoint:
    """One endpoint.

    Args:
        account: whose events it receives, or whose connected accounts' events.
        body: Stripe's object, which shows the settings.
        dropped: ids of events that will never come here.
    """

    account: str
    livemode: bool
    settings: EndpointRequest
    body: Json
    dropped: set[str] = field(default_factory=set)

    @property
    def id(self) -> str:
        """``we_...``."""
        return str(self.body["id"])

    @property
    def enabled(self) -> bool:
        """Whether it is served at all."""
        return self.settings.enabled

    def change(self, settings: EndpointRequest) -> None:
        """Go by other settings from now on, and show them."""
        self.settings = settings
        self.body |= shown(settings)

    def wants(self, account: Account, event: dict[str, Any]) -> bool:
        """Whether an event of an account belongs here."""
        if not self.enabled or account.livemode != self.livemode:
            return False
        if (account.id != self.account) != self.settings.connect:
            return False
        return any(fnmatch.fnmatchcase(event["type"], pattern) for pattern in self.settings.types)


def shown(settings: EndpointRequest) -> Json:
    """The fields of Stripe's object that tell of the settings."""
    return {
        "api_version": settings.api_version,
        "application": "ca_connect" if settings.connect else None,
        "enabled_events": list(settings.types),
        "status": "enabled" if settings.enabled else "disabled",
        "url": settings.url,
    }
