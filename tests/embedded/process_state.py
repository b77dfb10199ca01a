"""What a test of processes needs to see and to do: is it alive, kill it and wait until it is gone."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.checker.waiting import wait_for

GONE_LIMIT_SECONDS = 30.0


def is_alive(pid: int) -> bool:
    """Say whether the process runs; one that only waits for its parent to fetch the exit code is dead."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    state = Path(f"/proc/{pid}/stat")
    if not state.parent.parent.exists():
        return True
    try:
        return state.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_gone(*pids: int, limit_seconds: float = GONE_LIMIT_SECONDS) -> None:
    """Wait until none of the processes runs."""
    wait_for(
        lambda: not any(is_alive(pid) for pid in pids),
        limit_seconds=limit_seconds,
        what=f"end of the processes {pids}",
        step_seconds=0.02,
    )


def kill_hard(pid: int | None) -> None:
    """Send SIGKILL and wait until the process is gone."""
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_gone(pid)
