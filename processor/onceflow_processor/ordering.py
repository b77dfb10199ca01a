"""Whether a handler with an order meets an event.

Rule: what is left out is decided from the event's place and from facts alone, per handler, so that its neighbours without an
order meet the event all the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from onceflow_processor.effects import RESERVED_PREFIX, Effects, FactKey
from onceflow_processor.event import Event
from onceflow_processor.facts import Facts
from onceflow_processor.guards import Placed
from onceflow_processor.handlers import Handler
from onceflow_schemas.identity import Identity
from onceflow_schemas.object_order import Order, transition_of

TRANSITION = RESERVED_PREFIX + "transition"
"""The namespace of the facts that transitions are known by."""

_NOT_NEWER = frozenset({Order.OLDER, Order.SAME})


def is_left_out(handler: Handler, event: Event, *, effects: Effects, facts: Facts) -> bool:
    """Decide about an event with a place; for the first handler that meets each transition its fact is claimed."""
    placed = effects.placed
    if placed is None or handler.order == "as_is":
        return False
    if handler.order == "latest":
        return placed.order in _NOT_NEWER
    key = transition_key(placed, event)
    if key not in effects.facts and not effects.is_repeat:
        if facts.claim(key, event.cause):
            effects.facts.append(key)
        else:
            effects.is_repeat = True
            effects.again.append((key, event.cause))
    return effects.is_repeat


def transition_key(placed: Placed, event: Event) -> FactKey:
    """Return the fact of an event's transition: the object, and what makes this change of it that change."""
    digest = transition_of(
        placed.offered, previous_attributes=event.previous_attributes, request_id=event.request_id
    ).hex()
    return TRANSITION, f"{'/'.join(placed.key)}/{digest}"


def stale_of(effects: Iterable[Effects]) -> dict[Identity, bool]:
    """Return, sorted, the events that told an older state than was applied (True), or the applied state again (False)."""
    places = (one.placed for one in effects if one.placed is not None and one.placed.order in _NOT_NEWER)
    return dict(sorted((placed.identity, placed.order is Order.OLDER) for placed in places))


def counts_of(effects: Iterable[Effects]) -> dict[str, int]:
    """Count the events whose order mattered: by their place, unless they were plainly newer, and repeated transitions."""
    counts: dict[str, int] = {}
    for one in effects:
        if one.placed is not None and one.placed.order is not Order.NEWER:
            name = one.placed.order.value
            counts[name] = counts.get(name, 0) + 1
        if one.is_repeat:
            counts["repeated"] = counts.get("repeated", 0) + 1
    return counts
