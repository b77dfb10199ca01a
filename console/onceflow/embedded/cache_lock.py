"""The lock by which two starts at once do the work of a first start only once.

Rule: what is made in the cache folder is made under its lock, and whoever waited for the lock looks again before it
makes anything.  The lock is ``flock``, which the kernel drops when its owner dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

LOCK_POLL_SECONDS = 0.2


@contextlib.contextmanager
def cache_lock(path: Path, *, wait_seconds_max: float, waiting: Callable[[], None]) -> Iterator[bool]:
    """Hold the lock for the block; the value is False, and nothing is held, when another one kept it for too long.

    Args:
        path: the lock file, made when it is not there; it stays.
        wait_seconds_max: how long to wait for another owner.
        waiting: called once when there is something to wait for.

    Raises:
        OSError: the file cannot be opened for writing.
    """
    with path.open("a", encoding="ascii") as lock:
        deadline = time.monotonic() + wait_seconds_max
        held = _take(lock.fileno())
        if not held:
            waiting()
        while not held and time.monotonic() < deadline:
            time.sleep(LOCK_POLL_SECONDS)
            held = _take(lock.fileno())
        yield held


def _take(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
