"""G5 and S10: events of a shape that no code has seen yet, and events of another account or mode.

Rule: what is new is processed or ignored, and noted; what is broken is kept with its code; what belongs to somebody else is
never taken for ours, not even under an id that we know.
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.chaos.fault import fault, fired
from tests.chaos.planted_records import attested, record_of
from tests.chaos.sending import body_of, event, plant, post_until_taken
from tests.chaos.waits import TAKE_OVER_SECONDS, wait_processed
from tests.chaos.world import World
from tests.checker.waiting import wait_for

NOT_AN_EVENT = frozenset({"not_an_event"})
OTHER_MODE = frozenset({"other_mode"})
UNKNOWN_ACCOUNT = frozenset({"unknown_account"})
FUTURE_VERSION = "2031-01-01.zinnia"


def _state(world: World, event_id: str, *, account: str = "acct_embedded", mode: str = "test") -> str | None:
    rows = world.rows(
        "SELECT state FROM onceflow.inbox WHERE account = %s AND mode = %s AND event_id = %s", account, mode, event_id
    )
    return str(rows[0][0]) if rows else None


def _wait_state(world: World, event_id: str, state: str, *, account: str = "acct_embedded", mode: str = "test") -> None:
    def reached() -> bool:
        found = _state(world, event_id, account=account, mode=mode)
        assert found in (None, state), f"{event_id} is {found}, not {state}"
        return found == state

    wait_for(reached, limit_seconds=TAKE_OVER_SECONDS, what=f"{event_id} is {state}")


def _ran(world: World, event_id: str) -> int:
    return int(world.value("SELECT count(*) FROM shop.effect WHERE event_id = %s", event_id))


@fault("G5", "unknown types, new fields, fields that are gone, another api_version", soak="data")
def shapes_of_tomorrow(world: World, dice: Random) -> str:
    """Nothing is lost: known types run whatever else they carry, unknown ones are ignored with their record."""
    unknown = event("brand_new.thing.happened")
    newer = event(added={"nested": [1, {"deeper": None}]}, amount_in_future_units="10.99") | {
        "api_version": FUTURE_VERSION,
        "context": "ctx_1",
        "reason": {"type": "request", "request": {"id": "req_1"}},
    }
    bare = event()
    for name in ("api_version", "request"):
        del bare[name]
    null_version = event() | {"api_version": None, "pending_webhooks": None, "request": {}}
    broken = event()
    del broken["data"]
    for good in (unknown, newer, bare, null_version):
        post_until_taken(world, body_of(good))
    post_until_taken(world, body_of(broken), codes=NOT_AN_EVENT)
    _wait_state(world, unknown["id"], "ignored")
    for good in (newer, bare, null_version):
        _wait_state(world, good["id"], "processed")
        assert _ran(world, good["id"]) == 1, good["id"]
    _wait_state(world, broken["id"], "quarantined")
    assert _ran(world, unknown["id"]) == 0
    version = world.value("SELECT api_version FROM onceflow.inbox WHERE event_id = %s", newer["id"])
    assert version == FUTURE_VERSION, version
    wait_processed(world, 5)
    return f"an unknown type ignored, three shapes processed (api_version {version} noted), one without data kept"


@fault("S10", "events of another mode and of other accounts, also under ids that are known here", soak="planted")
def other_tenants(world: World, dice: Random) -> str:
    """Identity is account, mode and id; what is not ours is quarantined under its own identity and never runs."""
    ours = event()
    post_until_taken(world, body_of(ours))
    _wait_state(world, ours["id"], "processed")
    strangers: list[tuple[dict[str, Any], frozenset[str], str, str]] = [
        (ours | {"livemode": True}, OTHER_MODE, "acct_embedded", "live"),
        (ours | {"account": "acct_stranger"}, UNKNOWN_ACCOUNT, "acct_stranger", "test"),
        (event() | {"livemode": True}, OTHER_MODE, "acct_embedded", "live"),
        (event() | {"account": "acct_stranger", "livemode": True}, UNKNOWN_ACCOUNT, "acct_stranger", "live"),
    ]
    for body, codes, account, mode in strangers:
        post_until_taken(world, body_of(body), codes=codes)
        _wait_state(world, body["id"], "quarantined", account=account, mode=mode)
    moved = event()
    plant(
        world, {"bad_key"}, **record_of(attested(world, body_of(moved)), key=b"acct_stranger/" + moved["id"].encode())
    )
    wait_processed(world, 5)
    assert (_state(world, ours["id"]), _ran(world, ours["id"])) == ("processed", 1)
    assert _state(world, moved["id"]) is None, "a record under another account's key has touched a marker"
    ran = [body["id"] for body, *_ in strangers[2:] if _ran(world, body["id"])]
    assert ran == [], ran
    return fired(
        strangers, f"{len(strangers)} events of other tenants and a record under another account's key: none ran"
    )
