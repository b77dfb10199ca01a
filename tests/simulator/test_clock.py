"""The clock and what is due on it."""

from __future__ import annotations

import asyncio
import time

import pytest

from onceflow_simulator import Simulator
from onceflow_simulator.agenda import Agenda
from onceflow_simulator.clock import Clock


def test_a_clock_that_stands() -> None:
    clock = Clock(start=1000.0)
    assert (clock.now(), clock.mode) == (1000.0, "fixed")
    clock.advance(60)
    clock.set(5000)
    clock.advance(-3600)
    assert (clock.now(), clock.advanced_seconds) == (1400.0, 4000.0)
    clock.reset()
    assert (clock.now(), clock.advanced_seconds) == (1000.0, 0.0)


def test_a_clock_that_goes() -> None:
    clock = Clock()
    clock.set(5000)
    assert 5000 <= clock.now() < 5010
    clock.choose("fixed")
    stood = clock.now()
    assert clock.now() == stood
    clock.choose("real")
    assert stood <= clock.now() < stood + 10
    clock.reset()
    assert abs(clock.now() - time.time()) < 10


def test_what_is_due_runs_in_order_and_sees_its_time() -> None:
    async def run() -> list[tuple[str, float]]:
        clock = Clock(start=0.0)
        agenda = Agenda(clock)
        seen: list[tuple[str, float]] = []

        def again() -> None:
            seen.append(("b", clock.now()))
            agenda.after(5, lambda: seen.append(("b + 5", clock.now())))

        agenda.after(30, lambda: seen.append(("c", clock.now())))
        agenda.after(10, again)
        agenda.after(10, lambda: seen.append(("b2", clock.now())))
        agenda.after(-1, lambda: seen.append(("a", clock.now())))
        clock.advance(29)
        assert agenda.run_due() == 4
        assert len(agenda) == 1
        assert clock.now() == 29.0
        return seen

    assert asyncio.run(run()) == [("a", 0.0), ("b", 10.0), ("b2", 10.0), ("b + 5", 15.0)]


def test_a_bug_in_what_is_due_is_noted_and_stops_nothing() -> None:
    clock, bugs, seen = Clock(start=0.0), list[str](), list[float]()
    agenda = Agenda(clock, bugs=bugs)
    agenda.after(1, lambda: 1 // 0)
    agenda.after(2, lambda: seen.append(clock.now()))
    clock.advance(9)
    assert agenda.run_due() == 2
    assert seen == [2.0]
    assert ["ZeroDivisionError" in bug for bug in bugs] == [True]
    assert clock.now() == 9.0


def test_what_is_due_comes_by_itself() -> None:
    async def run() -> None:
        agenda = Agenda(Clock())
        done = asyncio.Event()
        running = asyncio.create_task(agenda.run())
        agenda.after(0.05, done.set)
        async with asyncio.timeout(5):
            await done.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(run())


def test_over_the_wire(simulator: Simulator) -> None:
    assert simulator.stop_clock(1_800_000_000) == 1_800_000_000
    before = simulator.call("GET", "/clock")["advanced_seconds"]
    assert simulator.advance(90) == 1_800_000_090
    moved = {"now": 1_800_000_090, "mode": "fixed", "advanced_seconds": before + 90}
    assert simulator.call("GET", "/clock") == moved
