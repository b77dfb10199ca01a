"""Decisions as tests give them, and the two keys that most of them are about."""

from __future__ import annotations

from typing import Any

from onceflow_processor.failures.deciding import Order, carry_out
from onceflow_processor.failures.filter import Filter
from onceflow_processor.failures.overview import Kind, Meant
from onceflow_schemas.failure_decisions import Action
from tests.processor.failures.conftest import Desk


def order(kind: Kind, action: Action, ids: list[str] | None = None, *, again: bool = False, **more: Any) -> Order:
    wanted = Filter(decided=True) if ids else more.pop("wanted", Filter(decided=again))
    meant = Meant(kind=kind, wanted=wanted, ids=tuple(ids) if ids else None)
    return Order(action=action, meant=meant, who="ada@desk", reason="mended", skipped_too=again, **more)


def decide(desk: Desk, kind: Kind, action: Action, *ids: str, **more: Any) -> dict[str, int]:
    done = carry_out(desk.connection, order(kind, action, list(ids), **more))
    return {verdict.value: count for verdict, count in done.verdicts.items()}


def blocked(desk: Desk) -> None:
    """Number 25 of a key failed for good; 26 and 27 wait behind it."""
    desk.quarantined("evt_25", offset=25, key="in_1")
    desk.parked("evt_26", key="in_1", offset=26)
    desk.parked("evt_27", key="in_1", offset=27)


def waiting(desk: Desk) -> None:
    """A head that waits for its next try, and two behind it."""
    desk.key("in_1", "retry", "evt_1", due="2099-01-01Z")
    desk.parked("evt_1", key="in_1", offset=1, failed=True)
    desk.parked("evt_2", key="in_1", offset=2)
    desk.parked("evt_3", key="in_1", offset=3)
