"""A stateful Stripe for tests, that loses answers, forgets keys after a day, and counts what really happened."""

from onceflow_simulator.client import Ledger, SimulatorClient, SimulatorRefused
from onceflow_simulator.simulator import Simulator

__all__ = ["Ledger", "Simulator", "SimulatorClient", "SimulatorRefused"]
