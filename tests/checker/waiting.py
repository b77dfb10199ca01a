"""Waiting for a condition, with a limit.

Rule: nothing here sleeps for a fixed time and hopes; it asks again until the answer is there or the limit has passed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

STEP_SECONDS = 0.1

Found = TypeVar("Found")


class NotReached(AssertionError):
    """The condition did not come true within its limit."""


def wait_for(
    condition: Callable[[], Found | None], *, limit_seconds: float, what: str, step_seconds: float = STEP_SECONDS
) -> Found:
    """Return the first true answer of ``condition``.

    Raises:
        NotReached: naming ``what`` and the limit.
    """
    pause = threading.Event()
    end = time.monotonic() + limit_seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() >= end:
            raise NotReached(f"{what}: not within {limit_seconds} s")
        pause.wait(step_seconds)
