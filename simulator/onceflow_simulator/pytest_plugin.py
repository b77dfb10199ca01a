"""Fixtures for tests of one's own: ``pytest_plugins = ["onceflow_simulator.pytest_plugin"]``.

Rule: one process per session, begun anew for each test; a bug of the simulator fails the test that met it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onceflow_simulator.simulator import Simulator


@pytest.fixture(scope="session")
def stripe_simulator_process() -> Iterator[Simulator]:
    """The process behind ``stripe_simulator``."""
    with Simulator() as running:
        yield running


@pytest.fixture
def stripe_simulator(stripe_simulator_process: Simulator) -> Iterator[Simulator]:
    """A Stripe in which nothing has happened yet: ``.url``, ``.api_key``, ``.faults``, ``.advance()``, ``.ledger()``."""
    stripe_simulator_process.reset()
    yield stripe_simulator_process
    bugs = stripe_simulator_process.state()["bugs"]
    assert not bugs, bugs[0]
