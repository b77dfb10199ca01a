"""Who waits behind whom: the decisions of parking.

Rule: an event runs only when nothing of its order key waits before it.  Pure: which keys are parked is asked, and what is
parked is written, elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from onceflow_processor.admission import Fault, Item
from onceflow_schemas.failure_course import Course, RetryRules
from onceflow_schemas.identity import Identity

NAMES_SEPARATOR = ", "
"""Between the names of handlers, where a fault may be of any of them; no name holds it."""


@dataclass(frozen=True, slots=True)
class Redriven:
    """A key whose head is tried again, with events behind it: ``fence`` is that of the lease, ``heads`` are in their order."""

    order_key: str
    heads: tuple[Identity, ...]
    fence: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """An event that waits: for so many seconds, or (None) for a person; ``fault`` is None for one that stands behind another."""

    item: Item
    fault: Fault | None
    wait_seconds: float | None


def stand_behind(items: Sequence[Item], parked_keys: AbstractSet[str]) -> list[Item]:
    """Return the items that must not run, because their key is parked or an earlier item of it has failed for good.

    Args:
        items: those of the batch that are ours, in its order.
        parked_keys: the keys that wait already.
    """
    stopped = set(parked_keys)
    behind: list[Item] = []
    for item in items:
        if item.fault is not None:
            if item.fault.blocks:
                stopped.add(item.order_key)
        elif item.order_key in stopped:
            behind.append(item)
    return behind


def give_way(items: Iterable[Item], parked_keys: AbstractSet[str]) -> list[Item]:
    """Return the items that failed although their key waits for an earlier one; they lose their fault.

    They stand behind it and are tried in their turn: with its own fault such an item would wait beside the head of its key,
    and what comes behind it would run before it.

    Args:
        items: those of the batch that are ours, in its order.
        parked_keys: the keys that wait already.
    """
    waits = set(parked_keys)
    late: list[Item] = []
    for item in items:
        if item.fault is None or not (item.fault.blocks or item.fault.course is Course.PARK):
            continue
        if item.order_key in waits:
            item.fault, item.tries = None, 0
            late.append(item)
        waits.add(item.order_key)
    return late


def handler_missing(failed_in: str | None, registered: Iterable[str]) -> Fault | None:
    """Return why an event must not be tried here: a handler that it failed in is not registered in this process.

    Without it the event would count as processed, or as ignored, and nobody would know that an effect is missing: as where a
    release is rolled out while the former one still runs, or is taken back.

    Args:
        failed_in: the names of the handlers that its last failure may be of, as its fault has them; None: of none.
        registered: the names of the handlers of its type.
    """
    known = set(registered)
    missing = [name for name in (failed_in or "").split(NAMES_SEPARATOR) if name and name not in known]
    if not missing:
        return None
    names = NAMES_SEPARATOR.join(missing)
    return Fault("handler_missing", f"not registered for this type: {names}", names, course=Course.PARK, blocks=True)


def exhausted(fault: Fault, *, attempts: int, rules: RetryRules) -> Fault:
    """Return the fault as it counts now: what was tried too often from parking needs a person."""
    if fault.course is not Course.PARK or fault.read is not None or attempts < rules.attempts_max:
        return fault
    return replace(fault, course=Course.QUARANTINE, detail=f"{fault.detail} (after {attempts} tries from parking)")


def line_of(
    items: Iterable[Item],
    behind: Iterable[Item],
    *,
    rules: RetryRules,
    share: Callable[[], float],
) -> list[Waiting]:
    """Return the events that wait after an attempt, in its order.

    Args:
        items: those of the batch that are ours, in its order.
        behind: those of them that stand behind another.
        rules: how long a retry waits.
        share: draws a random number from 0 to 1.
    """
    stands = {id(item) for item in behind}
    line: list[Waiting] = []
    for item in items:
        fault = item.fault
        if id(item) in stands:
            line.append(Waiting(item, None, 0.0))
        elif fault is not None and fault.course is Course.PARK:
            seconds = rules.wait_seconds(item.attempts, share=share(), asked_seconds=fault.wait_seconds)
            line.append(Waiting(item, fault, seconds))
        elif fault is not None and fault.blocks:
            line.append(Waiting(item, fault, None))
    return line
