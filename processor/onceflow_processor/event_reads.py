"""What must be read at Stripe before an event can be handled, and the event with what was read.

Rule: pure.  What was read is the object as it is now and not as the event told it, so it counts as told at the moment of the
read: events from before it are older.  ``event.raw`` stays what Stripe signed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import orjson

from onceflow_processor.event import Event
from onceflow_schemas.identity import Identity
from onceflow_schemas.money import money_problem
from onceflow_schemas.object_order import ObjectState, read_state
from onceflow_schemas.object_reads import ReadKind, ReadNeed, lines_path, object_path, thin_event_path
from onceflow_schemas.strict_json import read_strictly

READ_TYPE = "object.read"
"""Stands in the guard where else the event's type does: the state was read, no event told it."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a read found.

    Attributes:
        result: ``whole``, ``gone``, ``incomplete`` or ``failed``.
        body: as ``object_reads.assembled`` makes it; None unless it is whole, or a thin event whose object is gone.
        stripe_at: Stripe's clock, no later than the moment at which the read began; None where it did not say.
        detail: why it has failed.
    """

    result: str
    body: bytes | None
    stripe_at: datetime | None
    detail: str = ""


Readings = Mapping[tuple[ReadKind, str | None], Reading]
"""What was read for one event, by kind and version of the API: an event meets what has its own shape."""


def need_of_thin_event(identity: Identity) -> ReadNeed | None:
    """Return what a thin event needs; None when its id fits in no path."""
    path = thin_event_path(identity.event_id)
    if path is None:
        return None
    return ReadNeed(identity.account, identity.mode, ReadKind.THIN_EVENT, identity.event_id, path, None)


def need_of_tie(event: Event) -> ReadNeed | None:
    """Return the read that says which of two states of one moment is the object's now; None where nothing can be read."""
    subject = event.object
    path = object_path(subject.get("object"), subject.get("id"))
    if path is None:
        return None
    return ReadNeed(event.account, event.mode, ReadKind.OBJECT, str(subject["id"]), path, event.api_version)


def need_of_lines(event: Event) -> ReadNeed | None:
    """Return the read that completes the lines of the event's object; None when they are whole, or there is no way to."""
    subject = event.object
    path = lines_path(subject) if has_more_lines(subject) else None
    if path is None:
        return None
    return ReadNeed(event.account, event.mode, ReadKind.LINES, str(subject["id"]), path, event.api_version)


def has_more_lines(subject: Mapping[str, Any]) -> bool:
    """Tell whether an object shows only its first lines."""
    lines = subject.get("lines")
    return isinstance(lines, dict) and lines.get("has_more") is True


def whole_thin_event(event: Event, reading: Reading) -> Event:
    """Return a thin event as handlers see it: the fetched event, with its object in ``data.object``.

    Args:
        event: with the thin body.
        reading: ``whole`` or ``gone``.
    """
    found = {} if reading.body is None else read_strictly(reading.body).value
    fetched = {**event.body, **found.get("event", {})}
    related = fetched.get("related_object") or {}
    gone = {"id": related.get("id"), "object": related.get("type"), "deleted": True}
    subject = found.get("object", gone if reading.result == "gone" else {})
    data = fetched.get("data")
    reason = fetched.get("reason") or {}
    body = {
        **fetched,
        "data": {**(data if isinstance(data, dict) else {}), "object": subject},
        "request": reason.get("request") if isinstance(reason, dict) else None,
    }
    return replace(event, body=body, object_was_read=True, read_at=reading.stripe_at, read_body=orjson.dumps(body))


def with_object(event: Event, reading: Reading) -> Event:
    """Return an event whose object is the one that was read."""
    assert reading.body is not None, "only a whole read has an object"
    body = {**event.body, "data": {**event.body["data"], "object": read_strictly(reading.body).value}}
    return replace(event, body=body, object_was_read=True, read_at=reading.stripe_at)


def with_lines(event: Event, reading: Reading) -> Event:
    """Return an event whose object shows all its lines."""
    assert reading.body is not None, "only a whole read has lines"
    subject = event.object
    lines = {**subject["lines"], "data": read_strictly(reading.body).value, "has_more": False}
    body = {**event.body, "data": {**event.body["data"], "object": {**subject, "lines": lines}}}
    return replace(event, body=body)


def is_gone(event: Event) -> bool:
    """Tell whether the object that was read for an event is not there any more."""
    return event.object_was_read and event.object.get("deleted") is True


def state_of(event: Event) -> ObjectState:
    """Return the state that an event tells, or that was read for it: that counts as told at the moment of the read."""
    if not event.object_was_read or is_gone(event):
        return read_state(event.object, created=event.created, event_id=event.id, event_type=event.type)
    told = event.created.replace(microsecond=0)
    read = told if event.read_at is None else max(told, event.read_at.replace(microsecond=0))
    return read_state(event.object, created=read, event_id=event.id, event_type=READ_TYPE)


def problem_of(event: Event) -> tuple[str, str] | None:
    """Return what is wrong with the amounts of an object that was read, as (code, detail)."""
    return money_problem(event.object)
