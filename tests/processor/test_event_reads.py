"""What an event needs from Stripe, and what becomes of it with what was read: by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onceflow_processor.event import Event
from onceflow_processor.event_reads import (
    READ_TYPE,
    Reading,
    has_more_lines,
    need_of_lines,
    need_of_thin_event,
    need_of_tie,
    problem_of,
    state_of,
    whole_thin_event,
    with_lines,
    with_object,
)
from onceflow_schemas.identity import Identity
from onceflow_schemas.object_reads import ReadKind, ReadNeed

CREATED = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
THIN = {
    "id": "evt_T7",
    "object": "v2.core.event",
    "type": "v1.customer.updated",
    "related_object": {"id": "cus_1", "type": "customer", "url": "/v1/customers/cus_1"},
    "reason": {"type": "request", "request": {"id": "req_1", "idempotency_key": None}},
}


def event(subject: dict[str, Any] | None = None, *, body: dict[str, Any] | None = None) -> Event:
    told = body or {"id": "evt_1", "data": {"object": subject, "previous_attributes": {"name": "A"}}}
    return Event(
        identity=Identity("acct_1", "test", told["id"]),
        type=told.get("type", "customer.updated"),
        created=CREATED,
        received_at=CREATED,
        api_version="2024-06-20",
        body=told,
        raw=json.dumps(told).encode(),
    )


def reading(value: object, *, result: str = "whole", stripe_at: datetime | None = None) -> Reading:
    return Reading(result, None if value is None else json.dumps(value).encode(), stripe_at)


def test_a_tie_needs_its_object_in_the_events_version() -> None:
    found = need_of_tie(event({"id": "cus_1", "object": "customer"}))
    assert found == ReadNeed("acct_1", "test", ReadKind.OBJECT, "cus_1", "/v1/customers/cus_1", "2024-06-20")
    assert need_of_tie(event({"id": "x_1", "object": "unheard_of"})) is None


def test_a_thin_event_needs_itself() -> None:
    found = need_of_thin_event(Identity("acct_1", "test", "evt_T7"))
    assert found == ReadNeed("acct_1", "test", ReadKind.THIN_EVENT, "evt_T7", "/v2/core/events/evt_T7", None)
    assert need_of_thin_event(Identity("acct_1", "test", "sha256:00")) is None


@pytest.mark.parametrize(
    ("lines", "more"),
    [({"has_more": True}, True), ({"has_more": False}, False), ({"has_more": 1}, False), ([], False), (None, False)],
)
def test_lines_are_needed_when_there_are_more(lines: object, *, more: bool) -> None:
    subject = {"id": "in_37", "object": "invoice", "lines": lines}
    assert has_more_lines(subject) is more
    found = need_of_lines(event(subject))
    assert (found is not None) is more
    if found is not None:
        assert (found.kind, found.object_id) == (ReadKind.LINES, "in_37")
        assert found.path == "/v1/invoices/in_37/lines?limit=100"


def test_lines_of_what_has_no_path_stay_as_they_are() -> None:
    assert need_of_lines(event({"id": "x_1", "object": "unheard_of", "lines": {"has_more": True}})) is None


def test_a_thin_event_with_its_object() -> None:
    fetched = {**THIN, "data": {"note": 1}, "snapshot_event": "evt_S"}
    found = whole_thin_event(event(body=THIN), reading({"event": fetched, "object": {"id": "cus_1", "name": "B"}}))
    assert found.object == {"id": "cus_1", "name": "B"}
    assert found.body["data"]["note"] == 1
    assert found.body["snapshot_event"] == "evt_S"
    assert (found.object_was_read, found.request_id, found.previous_attributes) == (True, "req_1", {})
    assert json.loads(found.raw) == THIN


def test_a_thin_event_whose_object_is_gone() -> None:
    found = whole_thin_event(event(body=THIN), reading({"event": THIN}, result="gone"))
    assert found.object == {"id": "cus_1", "object": "customer", "deleted": True}


def test_a_thin_event_without_an_object() -> None:
    thin = {"id": "evt_T7", "object": "v2.core.event", "type": "v2.core.health.event", "reason": "none"}
    found = whole_thin_event(event(body=thin), reading({"event": thin}))
    assert (found.object, found.request_id) == ({}, None)


def test_an_object_that_was_read_takes_the_place_of_the_events_own() -> None:
    own = event({"id": "cus_1", "name": "A"})
    found = with_object(own, reading({"id": "cus_1", "name": "B"}))
    assert (found.object["name"], found.object_was_read) == ("B", True)
    assert found.previous_attributes == {"name": "A"}
    assert (own.object["name"], own.object_was_read, found.raw) == ("A", False, own.raw)


def test_lines_that_were_read_take_the_place_of_the_first_ones() -> None:
    invoice = {"id": "in_37", "amount_paid": 37_000, "lines": {"data": [1], "has_more": True, "total_count": 3}}
    own = event(invoice)
    found = with_lines(own, reading([{"id": "il_1"}, {"id": "il_2"}]))
    assert found.object["lines"] == {"data": [{"id": "il_1"}, {"id": "il_2"}], "has_more": False, "total_count": 3}
    assert found.object["amount_paid"] == 37_000
    assert own.object["lines"]["has_more"] is True
    assert not found.object_was_read


@pytest.mark.parametrize(
    ("stripe_at", "created"),
    [
        (None, CREATED),
        (CREATED - timedelta(seconds=5), CREATED),
        (CREATED + timedelta(seconds=5, microseconds=7), CREATED + timedelta(seconds=5)),
    ],
)
def test_what_was_read_counts_as_told_when_it_was_read(stripe_at: datetime | None, created: datetime) -> None:
    own = event({"id": "sub_1", "object": "subscription", "status": "active"})
    state = state_of(own, reading(None, stripe_at=stripe_at))
    assert (state.created, state.type, state.event_id) == (created, READ_TYPE, "evt_1")
    assert (state.status, state.tombstone) == ("active", False)


def test_a_final_status_that_was_read_is_final() -> None:
    own = event({"id": "sub_1", "object": "subscription", "status": "canceled"})
    assert state_of(own, reading(None)).tombstone is True


def test_amounts_are_looked_at() -> None:
    assert problem_of(event({"id": "ch_1", "amount": 5})) is None
    found = problem_of(event({"id": "ch_1", "amount": 1.5}))
    assert found is not None
    assert found[0] == "bad_amount"
