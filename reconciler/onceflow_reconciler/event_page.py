"""Whether a page of Stripe's event list can be believed, and what it holds.

Rule: a list that repeats itself, shows an event without an id, or says that there is more and shows nothing proves no absence;
its cursor stays, and a person is told.  Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from onceflow_reconciler.event_slices import Slice
from onceflow_schemas.strict_json import read_strictly

EVENT_ID_CHARACTERS_MAX: Final = 255


@dataclass(frozen=True, slots=True)
class ListedEvent:
    """An event as the list shows it."""

    event_id: str
    created: int
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """A page that can be believed."""

    events: tuple[ListedEvent, ...]
    has_more: bool


@dataclass(frozen=True, slots=True)
class Unbelievable:
    """Why a page is no evidence; ``code`` is one of ``unreadable``, ``repeated``, ``without_id``, ``endless``, ``outside``."""

    code: str
    detail: str


def read_page(body: bytes, *, within: Slice, seen: set[str]) -> Page | Unbelievable:
    """Read an answer of ``GET /v1/events``.

    Args:
        body: of the answer.
        within: what was asked for.
        seen: ids of the pages before; those of this one are added.
    """
    told = read_strictly(body).value
    if not isinstance(told, dict) or told.get("object") != "list":
        return Unbelievable("unreadable", "the answer is no list of Stripe")
    entries, has_more = told.get("data"), told.get("has_more")
    if not isinstance(entries, list) or not isinstance(has_more, bool):
        return Unbelievable("unreadable", "the list does not say what is in it, or whether there is more")
    if has_more and not entries:
        return Unbelievable("endless", "the list says that there is more, and shows nothing")
    events = []
    for entry in entries:
        event = _event(entry)
        if isinstance(event, Unbelievable):
            return event
        if event.event_id in seen:
            return Unbelievable("repeated", f"the list shows {event.event_id} twice")
        if not within.since <= event.created < within.until:
            return Unbelievable("outside", f"{event.event_id} was created outside of the time that was asked for")
        seen.add(event.event_id)
        events.append(event)
    return Page(tuple(events), has_more)


def _event(entry: object) -> ListedEvent | Unbelievable:
    if not isinstance(entry, dict) or entry.get("object") != "event":
        return Unbelievable("unreadable", "the list shows something that is no event")
    event_id, created = entry.get("id"), entry.get("created")
    if not isinstance(event_id, str) or not 0 < len(event_id) <= EVENT_ID_CHARACTERS_MAX:
        return Unbelievable("without_id", "the list shows an event without an id")
    if not isinstance(created, int) or isinstance(created, bool):
        return Unbelievable("unreadable", f"{event_id} has no time")
    return ListedEvent(event_id, created, entry)
