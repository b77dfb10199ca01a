"""Each part dies, the operator thrice, under load, in an order that the seed decides."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import cast

import pytest

from onceflow.demo.breaking import Breaker, plan_deaths
from onceflow.demo.running_system import RunningSystem
from onceflow_schemas.failure import Unavailable


class Recorder:
    """Stands for the system: kills are noted, successors come at once or never."""

    def __init__(self, *, returns: bool = True) -> None:
        self.killed: list[str] = []
        self.returns = returns

    def kill(self, part: str) -> int:
        self.killed.append(part)
        return 4711

    def wait_for_successor(self, part: str, old: int) -> float:
        assert old == 4711
        if not self.returns:
            raise Unavailable("service_failed", f"{part} was not back")
        return 1.5


def breaker_of(system: Recorder, plan: list[tuple[int, str]], say: Callable[[str], None]) -> Breaker:
    return Breaker(cast("RunningSystem", system), plan, say=say)


@pytest.mark.parametrize("seed", range(5))
def test_plan_names_each_death_within_the_traffic(seed: int) -> None:
    plan = plan_deaths(seed=seed, requests=2_000)
    parts = [part for _, part in plan]
    assert sorted(parts) == [
        "bridge", "kafka", "operator", "operator", "operator", "postgres", "processor", "relay",
    ]  # fmt: skip
    moments = [moment for moment, _ in plan]
    assert all(earlier <= later for earlier, later in itertools.pairwise(moments))
    assert moments[0] >= 200
    assert moments[-1] <= 1_600
    assert plan == plan_deaths(seed=seed, requests=2_000)


def test_deaths_happen_at_their_moments_and_are_told() -> None:
    system, said = Recorder(), list[str]()
    breaker = breaker_of(system, [(3, "relay"), (5, "kafka")], said.append)
    for number in range(5):
        breaker.before_request(number)
    assert system.killed == ["relay"]
    breaker.before_request(5)
    breaker.wait()
    assert [(death.part, death.after_requests) for death in breaker.deaths] == [("relay", 3), ("kafka", 5)]
    assert said[0] == "kill -9 relay (pid 4711), 3 requests sent"


def test_part_that_does_not_come_back_ends_the_demo() -> None:
    breaker = breaker_of(Recorder(returns=False), [(0, "relay"), (9, "kafka")], lambda _: None)
    breaker.before_request(0)
    with pytest.raises(Unavailable, match="relay was not back"):
        breaker.wait()
