"""The event as a handler sees it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from onceflow_processor.event import Event
from onceflow_schemas.identity import Identity

BODY: dict[str, Any] = {"data": {"object": {"id": "in_1"}, "previous_attributes": {"paid": False}}}


def event(body: dict[str, Any], *, mode: str = "test") -> Event:
    return Event(
        identity=Identity("acct_1", mode, "evt_1"),
        type="invoice.paid",
        created=datetime(2026, 1, 1, tzinfo=UTC),
        received_at=datetime(2026, 1, 2, tzinfo=UTC),
        api_version=None,
        body=body,
        raw=b"{}",
    )


def test_what_a_handler_reads() -> None:
    found = event(BODY)
    assert (found.id, found.account, found.livemode) == ("evt_1", "acct_1", False)
    assert found.object is BODY["data"]["object"]
    assert found.previous_attributes == {"paid": False}
    assert found.cause == "event:acct_1/test/evt_1"
    assert event(BODY, mode="live").livemode


@pytest.mark.parametrize("data", [{"object": {}}, {"object": {}, "previous_attributes": None}])
def test_an_event_that_updates_nothing(data: dict[str, Any]) -> None:
    assert event({"data": data}).previous_attributes == {}
