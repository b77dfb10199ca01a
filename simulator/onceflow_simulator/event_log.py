"""The events of one account: what was emitted, from when on it can be seen, and how a list of them is cut.

Rule: lists are newest first and end at the horizon; an event that becomes visible late takes the place of its creation,
so a cursor that has passed there never meets it.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from onceflow_simulator.errors import invalid, missing
from onceflow_simulator.paging import BEFORE, created_filter, cursor_of, pick
from onceflow_simulator.params import Params

TYPES_MAX = 20


@dataclass
class Emitted:
    """An event and what is known of it besides.

    Args:
        body: the event as the interface shows it; its ``data`` is JSON already.
        about: id and kind of its object.
        visible_at: seconds of the simulator's clock.
        undelivered: the endpoints that have not answered 2xx.
        thin_id: of its thin twin.
    """

    body: dict[str, Any]
    about: dict[str, str]
    visible_at: float
    undelivered: set[str] = field(default_factory=set)
    thin_id: str = ""

    def shown(self) -> dict[str, Any]:
        """The event with the number of endpoints that still wait for it."""
        self.body["pending_webhooks"] = len(self.undelivered)
        return self.body


class EventLog:
    """Events in the order in which they happened."""

    def __init__(self) -> None:
        self._events: list[Emitted] = []
        self._place: dict[str, int] = {}
        self._thin: dict[str, int] = {}

    def __iter__(self) -> Iterator[Emitted]:
        return iter(self._events)

    def __len__(self) -> int:
        return len(self._events)

    def add(self, emitted: Emitted) -> None:
        """One more event."""
        self._place[emitted.body["id"]] = len(self._events)
        if emitted.thin_id:
            self._thin[emitted.thin_id] = len(self._events)
        self._events.append(emitted)

    def find(self, id: str) -> Emitted | None:
        """The event, whether or not it can be seen yet or still."""
        place = self._place.get(id)
        return None if place is None else self._events[place]

    def find_thin(self, id: str) -> Emitted | None:
        """The event by the id of its thin twin."""
        place = self._thin.get(id)
        return None if place is None else self._events[place]

    def get(self, id: str, *, now: float, horizon_seconds: float) -> Emitted:
        """The event, when it can be seen.

        Raises:
            StripeError: 404.
        """
        found = self.find(id)
        if found is None or not _seen(found, now=now, horizon_seconds=horizon_seconds):
            raise missing("event", id)
        return found

    def page(
        self, params: Params, *, limit: int, now: float, horizon_seconds: float, expired_cursor: str
    ) -> tuple[list[Emitted], bool]:
        """One page and whether there are more in the direction of the cursor.

        Raises:
            StripeError: 400, for filters or a cursor that cannot be.
        """
        wanted = _filter(params, now=now, horizon_seconds=horizon_seconds)
        cursor, param = cursor_of(params)
        place = len(self._events)
        if cursor:
            found = self._place.get(cursor)
            if found is None or not _seen(self._events[found], now=now, horizon_seconds=horizon_seconds):
                if expired_cursor == "empty":
                    return [], False
                raise missing("event", cursor, param=param)
            place = found
        places = range(place + 1, len(self._events)) if param == BEFORE else range(place - 1, -1, -1)
        return pick((self._events[n] for n in places), wanted, limit=limit, reverse=param == BEFORE)


def _seen(emitted: Emitted, *, now: float, horizon_seconds: float) -> bool:
    return emitted.visible_at <= now and emitted.body["created"] >= int(now - horizon_seconds)


def _filter(params: Params, *, now: float, horizon_seconds: float) -> Callable[[Emitted], bool]:
    type_, types = params.get("type"), params.get("types")
    if type_ and types:
        raise invalid("You may only specify one of these parameters: type, types.")
    if types is not None and (not isinstance(types, list) or len(types) > TYPES_MAX):
        raise invalid(f"You may specify up to {TYPES_MAX} types.", param="types")
    within = created_filter(params.get("created"))
    success = params.get("delivery_success")

    def wanted(emitted: Emitted) -> bool:
        body = emitted.body
        return (
            _seen(emitted, now=now, horizon_seconds=horizon_seconds)
            and within(body["created"])
            and (not type_ or fnmatch.fnmatchcase(body["type"], type_))
            and (not types or body["type"] in types)
            and (success is None or (success == "true") == (not emitted.undelivered))
        )

    return wanted
