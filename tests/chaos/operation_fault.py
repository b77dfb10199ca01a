"""Faults of operations: the same catalogue, in a world that has workers and a simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from tests.chaos.fault import fault
from tests.chaos.operations_world import OperationsWorld
from tests.chaos.world import World

OperationAct = Callable[[OperationsWorld, Random], str]
SOAK = "operations"


def operation_fault(
    identity: str, what: str, *, soak: str = SOAK, points: tuple[str, ...] = (), every: int = 1
) -> Callable[[OperationAct], OperationAct]:
    """Take the decorated function into the catalogue; no webhooks but the simulator's come while it runs."""

    def take(act: OperationAct) -> OperationAct:
        def in_world(world: World, dice: Random) -> str:
            assert isinstance(world, OperationsWorld), f"{identity} needs a world with operations"
            return act(world, dice)

        fault(identity, what, soak=soak, points=points, quiet=True, every=every)(in_world)
        return act

    return take


def posts(world: OperationsWorld, *ids: str) -> list[str]:
    """The keys of the requests that reached Stripe for these operations, in their order."""
    return [str(one["key"]) for one in world.journal(*ids)]


def fired_faults(world: OperationsWorld, *ids: str) -> list[str]:
    """The names of what went wrong at Stripe for these operations."""
    return [str(one["fault"]) for one in world.journal(*ids) if one["name"] != "watch"]


def effects(world: OperationsWorld, identity: str) -> int:
    """How often the operation really acted."""
    ledger = world.simulator.ledger()
    return ledger.count("charge", identity) + ledger.count("refund", identity)


def each_once(world: OperationsWorld, ids: Sequence[str], *, times: int = 1) -> None:
    """Each of these operations acted exactly so often."""
    found = {one: effects(world, one) for one in ids}
    assert set(found.values()) <= {times}, found
