"""Lists: newest first, cursors both ways, ``created`` filters, immediately consistent.

Rule: a cursor that is no object of this list is refused; a page never holds more than its limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from onceflow_simulator.paging import BEFORE, created_filter, cursor_of, pick
from onceflow_simulator.params import Params
from onceflow_simulator.routes import Call, Handler
from onceflow_simulator.world import Json

LIMIT_DEFAULT = 10


def limit_of(params: Params, *, default: int = LIMIT_DEFAULT) -> int:
    """How many items a page holds at most, checked by the address's LIST."""
    return int(params.get("limit", default))


def list_body(path: str, data: list[Any], *, has_more: bool) -> Json:
    """The JSON of a list."""
    return {"object": "list", "data": data, "has_more": has_more, "url": path}


def page_of(call: Call, kind: str, *, wanted: Callable[[Json], bool]) -> Json:
    """One page of the account's objects of a kind.

    Raises:
        StripeError: 400, both cursors or a bad filter; 404, the cursor is no such object.
    """
    within = created_filter(call.params.get("created"))
    last, param = cursor_of(call.params)
    items = list(call.books.all(kind))
    if last is not None:
        cursor = call.books.get(kind, last, param=param)
        place = next(n for n, item in enumerate(items) if item is cursor)
        items = items[place + 1 :] if param == BEFORE else items[:place]
    page, has_more = pick(
        items if param == BEFORE else reversed(items),
        lambda item: within(item.get("created", 0)) and wanted(item),
        limit=limit_of(call.params),
        reverse=param == BEFORE,
    )
    return list_body(call.path, page, has_more=has_more)


def lister(kind: str, filters: Mapping[str, str]) -> Handler:
    """A handler that lists a kind, with filters: parameter -> field of the object, with dots between nested ones."""

    def handle(call: Call) -> Json:
        chosen = {field: call.params[name] for name, field in filters.items() if name in call.params}
        return page_of(
            call,
            kind,
            wanted=lambda item: all(text_of(value_at(item, field)) == text for field, text in chosen.items()),
        )

    return handle


def value_at(item: Json, path: str) -> Any:
    """The value of a field, with dots between nested ones; None where there is none."""
    value: Any = item
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def text_of(value: Any) -> str | None:
    """A value as a request writes it; None for none."""
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)
