"""All faults, and the world of each soak."""

from __future__ import annotations

from pathlib import Path

from tests.chaos import (
    bridge_faults,
    bridge_refusals,
    bus_faults,
    clock_faults,
    consumer_faults,
    data_faults,
    database_faults,
    lane_faults,
    ledger_faults,
    lock_faults,
    operation_answers,
    operation_kills,
    operation_time,
    operation_webhooks,
    operations_proved,
    parking_faults,
    planted_records,
    poison_faults,
    postgres_faults,
    reader_faults,
    reconciler_faults,
    reconciler_lists,
    relay_faults,
    replay_faults,
    restore_faults,
    retention_faults,
    security_faults,
    shape_faults,
    upgrade_faults,
)
from tests.chaos.bus_world import BusWorld
from tests.chaos.fault import REGISTRY, Fault
from tests.chaos.operations_proved import ProvedOperationsWorld
from tests.chaos.operations_world import OperationsWorld
from tests.chaos.reconciler_world import ReconcilerWorld
from tests.chaos.upgrade_world import UpgradeWorld
from tests.chaos.world import World

MODULES = (
    bridge_faults,
    bridge_refusals,
    consumer_faults,
    planted_records,
    bus_faults,
    postgres_faults,
    data_faults,
    parking_faults,
    poison_faults,
    database_faults,
    relay_faults,
    lane_faults,
    retention_faults,
    lock_faults,
    shape_faults,
    upgrade_faults,
    ledger_faults,
    clock_faults,
    security_faults,
    operation_kills,
    operation_answers,
    operation_time,
    operation_webhooks,
    reader_faults,
    replay_faults,
    reconciler_faults,
    reconciler_lists,
    restore_faults,
    operations_proved,
)
"""Importing them fills the registry."""


def all_faults() -> list[Fault]:
    """Every fault in the order of the modules."""
    return list(REGISTRY.values())


def make_world(soak: str, folder: Path, seed: int) -> World:
    """Return the world of a soak, not started."""
    if soak == "upgrade":
        return UpgradeWorld(folder, seed=seed)
    if soak == "bus":
        return BusWorld(folder, seed=seed)
    if soak == "reconciler_healthy":
        # Webhooks that are seconds late are no loss, as with the grace that is set by default.
        return ReconcilerWorld(folder, seed=seed, settings={"reconciler.grace_seconds": 60})
    if soak.startswith("reconciler"):
        return ReconcilerWorld(folder, seed=seed)
    if soak in {"operations_proved", "operations_away", "operations_restored"}:
        return ProvedOperationsWorld(folder, seed=seed)
    if soak.startswith("operations"):
        return OperationsWorld(folder, seed=seed, shifted_clock=soak == "operations_clock")
    return World(folder, seed=seed, shifted_clock=soak == "clock", small_disk=soak == "disk")
