"""What the kernel says about a process."""

from __future__ import annotations

from pathlib import Path


def state_letter(pid: int) -> str | None:
    """Return the state of a process as the kernel names it (R, S, T for stopped, Z for dead and not yet buried)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def is_gone(pid: int) -> bool:
    """The process does not run any more."""
    return state_letter(pid) in {None, "Z", "X"}


def is_stopped(pid: int) -> bool:
    """The process was stopped by a signal."""
    return state_letter(pid) == "T"
