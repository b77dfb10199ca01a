"""The second act: every part is killed with SIGKILL, the operator thrice, while webhooks and calls are on their way.

Rule: the order and the moments come from the seed.  A part is killed only when the one before is back, because two
faults at once would prove less about each of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from onceflow.demo.running_system import RunningSystem

PARTS = ("bridge", "processor", "operator", "operator", "operator", "relay", "kafka", "postgres")
FIRST_SHARE, LAST_SHARE = 0.1, 0.8
"""The deaths lie between these shares of the traffic, so that each of them is under load."""


@dataclass(frozen=True, slots=True)
class Death:
    """One part's death: after how many requests, and how long until another process stood in its place."""

    part: str
    pid: int
    after_requests: int
    recovery_seconds: float


def plan_deaths(*, seed: int, requests: int) -> list[tuple[int, str]]:
    """Return (after how many requests, part) for each death, in order."""
    random = Random(seed)  # noqa: S311 - test data, must repeat
    parts = random.sample(PARTS, len(PARTS))
    share = (LAST_SHARE - FIRST_SHARE) / len(parts)
    moments = [int(requests * (FIRST_SHARE + share * (number + random.random()))) for number in range(len(parts))]
    return list(zip(moments, parts, strict=True))


class Breaker:
    """Kills parts by plan; each recovery is watched in the background while the traffic goes on."""

    def __init__(self, system: RunningSystem, plan: list[tuple[int, str]], *, say: Callable[[str], None]) -> None:
        self.deaths: list[Death] = []
        self.failure: BaseException | None = None
        self._system = system
        self._plan = list(plan)
        self._say = say
        self._watching: threading.Thread | None = None

    def before_request(self, number: int) -> None:
        """Kill what is due before this request leaves.

        Raises:
            Unavailable: the part killed before did not come back.
        """
        if self._plan and number >= self._plan[0][0]:
            self.wait()
            _, part = self._plan.pop(0)
            pid = self._system.kill(part)
            self._say(f"kill -9 {part} (pid {pid}), {number:,} requests sent")
            self._watching = threading.Thread(target=self._watch, args=(part, pid, number), daemon=True)
            self._watching.start()

    def wait(self) -> None:
        """Wait until the part killed last is back."""
        if self._watching is not None:
            self._watching.join()
            self._watching = None
        if self.failure is not None:
            raise self.failure

    def _watch(self, part: str, pid: int, number: int) -> None:
        try:
            seconds = self._system.wait_for_successor(part, pid)
        except BaseException as failure:  # noqa: BLE001 - told to the thread that waits
            self.failure = failure
            return
        self.deaths.append(Death(part, pid, number, seconds))
        self._say(f"{part} is back after {seconds:.1f} s")
