"""How a list is cut into pages: cursors, ``created``, and one item more than the page to know whether there are more.

Rule: pure, and the same for objects and events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

from onceflow_simulator.errors import invalid
from onceflow_simulator.params import Params

AFTER, BEFORE = "starting_after", "ending_before"
Item = TypeVar("Item")


def cursor_of(params: Params) -> tuple[str | None, str]:
    """The id from which a list goes on, None for its beginning, and the parameter that says so.

    Raises:
        StripeError: 400, both cursors.
    """
    if params.get(AFTER) and params.get(BEFORE):
        raise invalid(f"You may only specify one of these parameters: {AFTER}, {BEFORE}.")
    return (params[BEFORE], BEFORE) if params.get(BEFORE) else (params.get(AFTER) or None, AFTER)


def pick(
    items: Iterable[Item], wanted: Callable[[Item], bool], *, limit: int, reverse: bool
) -> tuple[list[Item], bool]:
    """The first items that are wanted, and whether there are more of them.

    Args:
        items: away from the cursor.
        reverse: shown the other way round: newest first, although the cursor is at the old end.
    """
    found = list(islice(filter(wanted, items), limit + 1))
    page = found[:limit]
    return page[::-1] if reverse else page, len(found) > limit


def created_filter(created: Any) -> Callable[[int], bool]:
    """Whether a time is within ``created`` (a second, or ``gt``, ``gte``, ``lt``, ``lte``).

    Raises:
        StripeError: 400, a bound is no number.
    """
    if created is None:
        return lambda _at: True
    try:
        bounds = {name: int(value) for name, value in created.items()} if isinstance(created, dict) else int(created)
    except (ValueError, TypeError):
        raise invalid(f"Invalid timestamp: {created}", param="created") from None
    if isinstance(bounds, int):
        return lambda at: at == bounds
    return lambda at: (
        at > bounds.get("gt", -1)
        and at >= bounds.get("gte", 0)
        and at < bounds.get("lt", 1 << 62)
        and at <= bounds.get("lte", 1 << 62)
    )
