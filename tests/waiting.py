"""Waiting in tests for what comes true by itself.

Rule: who waits long looks seldom.  A look opens a connection or asks a broker, and takes the time for it from what is waited for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

PACE_SECONDS_MIN: Final = 0.02
PACE_SECONDS_MAX: Final = 0.15
_PAUSE = threading.Event()


def wait_until(what: Callable[[], T], *, within_seconds: float, why: str) -> T:
    """Return the first true result; fail when there is none in time."""
    begun = time.monotonic()
    while True:
        found = what()
        if found:
            return found
        waited = time.monotonic() - begun
        assert waited < within_seconds, f"waited {within_seconds} s in vain: {why}"
        _PAUSE.wait(min(PACE_SECONDS_MAX, PACE_SECONDS_MIN + waited / 10))
