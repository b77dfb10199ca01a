"""Whether a page of one of Stripe's lists can be believed, and what it holds.

Rule: a list that repeats itself, shows something without an id, or says that there is more and shows nothing proves no absence;
its cursor stays, and a person is told.  Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from onceflow_reconciler.slices import Slice
from onceflow_schemas.strict_json import read_strictly

ID_CHARACTERS_MAX: Final = 255


@dataclass(frozen=True, slots=True)
class Listed:
    """An event or another object as the list shows it."""

    id: str
    created: int
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """A page that can be believed."""

    items: tuple[Listed, ...]
    has_more: bool


@dataclass(frozen=True, slots=True)
class Unbelievable:
    """Why a page is no evidence.

    Attributes:
        code: ``unreadable``, ``repeated``, ``without_id``, ``endless``, ``outside``, ``other_mode`` or ``too_many_pages``.
        detail: for people.
    """

    code: str
    detail: str


def read_page(body: bytes, *, kind: str, within: Slice, seen: set[str], livemode: bool) -> Page | Unbelievable:
    """Read an answer.

    Args:
        body: of the answer.
        kind: of the objects, as their field ``object`` says.
        within: what was asked for.
        seen: ids of the pages before; those of this one are added.
        livemode: of the key: a list never shows the other mode's.
    """
    told = read_strictly(body).value
    if not isinstance(told, dict) or told.get("object") != "list":
        return Unbelievable("unreadable", "the answer is no list of Stripe")
    entries, has_more = told.get("data"), told.get("has_more")
    if not isinstance(entries, list) or not isinstance(has_more, bool):
        return Unbelievable("unreadable", "the list does not say what is in it, or whether there is more")
    if has_more and not entries:
        return Unbelievable("endless", "the list says that there is more, and shows nothing")
    items = []
    for entry in entries:
        item = _item(entry, kind)
        if isinstance(item, Unbelievable):
            return item
        if item.body.get("livemode", livemode) is not livemode:
            return Unbelievable("other_mode", f"{item.id} is not of the mode of the key")
        if item.id in seen:
            return Unbelievable("repeated", f"the list shows {item.id} twice")
        if not within.since <= item.created < within.until:
            return Unbelievable("outside", f"{item.id} was created outside of the time that was asked for")
        seen.add(item.id)
        items.append(item)
    return Page(tuple(items), has_more)


def _item(entry: object, kind: str) -> Listed | Unbelievable:
    if not isinstance(entry, dict) or entry.get("object") != kind:
        return Unbelievable("unreadable", f"the list shows something that is no {kind}")
    found, created = entry.get("id"), entry.get("created")
    if not isinstance(found, str) or not 0 < len(found) <= ID_CHARACTERS_MAX:
        return Unbelievable("without_id", f"the list shows one {kind} without an id")
    if not isinstance(created, int) or isinstance(created, bool):
        return Unbelievable("unreadable", f"{found} has no time")
    return Listed(found, created, entry)
