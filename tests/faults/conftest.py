"""One running system for all faults: they come one after another, as in a bad week, and each is judged on everything."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from tests.load.rig import Rig

LEASE_SECONDS = 3


@pytest.fixture(scope="session")
def fault_seed() -> int:
    """Printed with every failure; set ONCEFLOW_FAULT_SEED to repeat a run."""
    return int(os.environ.get("ONCEFLOW_FAULT_SEED") or random.randrange(10**6))


@pytest.fixture(scope="package")
def shared_rig(tmp_path_factory: pytest.TempPathFactory, fault_seed: int) -> Iterator[Rig]:
    rig = Rig(tmp_path_factory.mktemp("faults"), seed=fault_seed, settings={"relay.lease_ttl_seconds": LEASE_SECONDS})
    try:
        rig.start()
        yield rig
    finally:
        rig.stop()


@pytest.fixture
def rig(shared_rig: Rig) -> Rig:
    print(f"fault seed {shared_rig.seed}, logs in {shared_rig.folder}")
    return shared_rig


@pytest.fixture
def dice(fault_seed: int, request: pytest.FixtureRequest) -> random.Random:
    """Randomness of one test, the same for one seed in whatever order the tests run."""
    return random.Random(f"{fault_seed} {request.node.name}")
