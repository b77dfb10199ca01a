"""Ends the backends that a killed postmaster has left behind.

Rule: only processes that run the server's program *inside this data folder* are touched, only by the owner of the
folder's lock, and only when the postmaster that started them is dead.  Idle backends notice the death of their postmaster by themselves;
one that computes goes on for as long as its query takes, and until then every new server is refused.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

PROCESSES = Path("/proc")


def end_orphans(program: Path, data: Path) -> list[int]:
    """Kill what is left over and return the process ids; systems without /proc are left to the retries.

    Args:
        program: the server's program.
        data: the server's data folder, in which every backend has its working directory.
    """
    found = [int(process.name) for process in PROCESSES.glob("[0-9]*") if _runs(process, program, data)]
    if _postmaster(data) in found:
        return []
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


def _runs(process: Path, program: Path, data: Path) -> bool:
    try:
        return (process / "exe").samefile(program) and (process / "cwd").samefile(data)
    except OSError:
        # It ended meanwhile, or belongs to another user.
        return False


def _postmaster(data: Path) -> int | None:
    """Return the process id that the server wrote into its lock file; it stays there after kill -9."""
    try:
        return int((data / "postmaster.pid").read_text(encoding="ascii").splitlines()[0])
    except (OSError, ValueError, IndexError):
        return None
