"""What is due later on the simulator's clock: a debit that settles, a refund that fails, the next try of a webhook.

Rule: what is due runs in the order of its time, and sees the time at which it was due, however far the clock jumped.  A bug
in one of them is noted and stops none of the others.
"""

from __future__ import annotations

import asyncio
import heapq
import traceback
from collections.abc import Callable

from onceflow_simulator.clock import Clock

LOOK_SECONDS_MAX = 0.5
"""The longest wait before the clock is looked at again: it may have been moved."""
RUN_MAX = 1_000_000
"""More than this in one go is a rule that schedules itself without end."""

Action = Callable[[], object]


class Agenda:
    """Actions with the time at which they are due.

    Args:
        clock: whose time counts.
        bugs: where what an action raises is noted.
    """

    def __init__(self, clock: Clock, *, bugs: list[str] | None = None) -> None:
        self._clock = clock
        self._bugs = [] if bugs is None else bugs
        self._heap: list[tuple[float, int, Action]] = []
        self._count = 0
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._heap)

    def after(self, seconds: float, action: Action) -> None:
        """Run an action so many seconds from now."""
        self._count += 1
        heapq.heappush(self._heap, (self._clock.now() + max(seconds, 0.0), self._count, action))
        self._changed.set()

    def run_due(self) -> int:
        """Run everything that is due, in order; the number of actions that ran."""
        count = 0
        end = self._clock.now()
        while self._heap and self._heap[0][0] <= end:
            due, _, action = heapq.heappop(self._heap)
            try:
                with self._clock.pretend(due):
                    action()
            except Exception:  # noqa: BLE001 - a bug of the simulator, which must not end all deliveries in silence.
                self._bugs.append(traceback.format_exc())
            count += 1
            assert count < RUN_MAX, "an action schedules itself without end"
        return count

    def clear(self) -> None:
        """Forget everything."""
        self._heap.clear()

    async def run(self) -> None:
        """Run what becomes due as time passes, until cancelled."""
        while True:
            self._changed.clear()
            self.run_due()
            wait = LOOK_SECONDS_MAX
            if self._heap:
                wait = min(wait, max(self._heap[0][0] - self._clock.now(), 0.0))
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                continue
