"""One change becomes one event (or, by a knob, two), its thin twin, and deliveries.

Rule: an event holds the object as it was at that moment, and the request that caused it with its idempotency key, which
is how a change is found whose answer was lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from onceflow_simulator.event_log import Emitted
from onceflow_simulator.world import Account, Json, World


@dataclass(frozen=True)
class Origin:
    """The request behind a change; both None for what Stripe does by itself."""

    request_id: str | None
    key: str | None


def emit(
    world: World, account: Account, *, origin: Origin, type: str, body: Json, previous: Json | None = None
) -> None:
    """Make the event of a change, list it, and hand it to the deliveries."""
    count = 2 if world.chance(world.knobs.event_twin_share) else 1
    for _ in range(count):
        event = _event(world, account, origin=origin, type=type, body=body, previous=previous)
        about = {"id": body["id"], "type": body["object"]}
        lag = world.knobs.event_lag_seconds if world.chance(world.knobs.event_lag_share) else 0.0
        emitted = Emitted(event, about, visible_at=world.clock.now() + lag, thin_id=world.ids.new("evt_test"))
        account.events.add(emitted)
        if world.deliveries is not None:
            world.deliveries.take(account, emitted)


def _event(
    world: World, account: Account, *, origin: Origin, type: str, body: Json, previous: Json | None
) -> dict[str, Any]:
    # Bytes, not a copy: the object goes on changing, and there may be very many events.
    told = {"object": body} if previous is None else {"object": body, "previous_attributes": previous}
    data = orjson.Fragment(orjson.dumps(told))
    event: dict[str, Any] = {"id": world.ids.new("evt"), "object": "event"}
    if account.connected:
        event["account"] = account.id
    return {
        **event,
        "api_version": world.api_version,
        "created": world.clock.seconds(),
        "data": data,
        "livemode": account.livemode,
        "pending_webhooks": 0,
        "request": {"id": origin.request_id, "idempotency_key": origin.key},
        "type": type,
    }


def thin(emitted: Emitted, account: Account, *, fetched: bool = False) -> dict[str, Any]:
    """The thin twin: pushed without data; fetched with the id of the snapshot."""
    event, about = emitted.body, emitted.about
    created = datetime.fromtimestamp(event["created"], UTC)
    twin: dict[str, Any] = {
        "id": emitted.thin_id,
        "object": "v2.core.event",
        "type": f"v1.{event['type']}",
        "created": created.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "livemode": event["livemode"],
        "related_object": {**about, "url": f"/v1/{about['type'].replace('.', '/')}s/{about['id']}"},
    }
    if account.connected:
        twin["context"] = account.id
    if event["request"]["id"] is not None:
        twin["reason"] = {"type": "request", "request": dict(event["request"])}
    if fetched:
        twin |= {"data": {}, "snapshot_event": event["id"]}
    return twin
