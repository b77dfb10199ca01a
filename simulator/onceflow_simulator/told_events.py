"""Events that a test tells as having happened: the list shows them, and they are delivered only where that is asked for.

Rule: they are taken all or none, and shown as they were told; what no event can be is refused.
"""

from __future__ import annotations

import json
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field

from onceflow_simulator.errors import invalid
from onceflow_simulator.event_log import Emitted
from onceflow_simulator.world import Account, World

EVENTS_MAX = 100_000


class ToldEvents(BaseModel):
    """Whole events in the order of their times, of one account; the platform's when it is left out.

    ``deliver`` sends them to whoever wants them, with all the troubles of the endpoints.
    """

    model_config = ConfigDict(extra="forbid")

    account: str | None = None
    livemode: bool = False
    deliver: bool = False
    events: list[dict[str, Any]] = Field(min_length=1, max_length=EVENTS_MAX)


def tell(world: World, account: Account, *, events: list[dict[str, Any]]) -> list[Emitted]:
    """Take events; return them as they are kept.

    Raises:
        StripeError: 400, one of them is none, is known, or is older than the one before.
    """
    seen: set[str] = set()
    latest = 0
    for event in events:
        subject = event.get("data", {}).get("object") if isinstance(event.get("data"), dict) else None
        texts = (event.get("id"), event.get("type"))
        if not all(isinstance(text, str) and text for text in texts) or not isinstance(subject, dict):
            raise invalid("An event needs id, type and data.object.")
        created = event.get("created")
        if not isinstance(created, int) or created < latest:
            raise invalid(f"{event['id']} has no time, or is older than the one before it.")
        if event["id"] in seen or account.events.find(event["id"]) is not None:
            raise invalid(f"{event['id']} has happened already.")
        seen.add(event["id"])
        latest = created
    now = world.clock.now()
    taken = []
    for event in events:
        subject = event["data"]["object"]
        about = {"id": str(subject.get("id", "")), "type": str(subject.get("object", ""))}
        taken.append(Emitted(_shown({"object": "event", **event}), about, visible_at=now))
        account.events.add(taken[-1])
    return taken


def _shown(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event whose object can be written: half a character and a very long number are JSON, and not orjson's."""
    try:
        orjson.dumps(event)
    except orjson.JSONEncodeError:
        return {**event, "data": orjson.Fragment(json.dumps(event["data"]).encode())}
    return event
