"""One line of the doctor, and what all lines together mean.  Pure.

Rule: a cross without a fix does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from onceflow.exit_codes import CHECK_FAILED, DEPENDENCY, OK, SETTINGS
from onceflow_schemas.failure import Failure, Misconfigured

Part = Literal["bridge", "process", "operate", "relay", "reconcile", "operator"]
"""The services, and a person who runs ``progress``, ``lanes``, ``outcomes`` and ``operations``."""
PARTS: tuple[Part, ...] = ("bridge", "process", "operate", "relay", "reconcile", "operator")


@dataclass(frozen=True, slots=True)
class Checked:
    """What was looked at.

    Args:
        subject: what it is about, in one or two words.
        ok: tick or cross.
        found: what was found.
        fix: what to do about a cross; empty for a tick.
        status: the exit status that a cross means.
    """

    subject: str
    ok: bool
    found: str
    fix: str = ""
    status: int = CHECK_FAILED

    def __post_init__(self) -> None:
        assert self.ok or self.fix, f"a cross needs a fix: {self}"


def tick(subject: str, found: str) -> Checked:
    """Return a line that is fine."""
    return Checked(subject, True, found)  # noqa: FBT003 - a dataclass's own field, in a function that names it


def cross(subject: str, found: str, *, fix: str, status: int = CHECK_FAILED) -> Checked:
    """Return a line that is not."""
    return Checked(subject, False, found, fix, status)  # noqa: FBT003 - as above


def crosses(subject: str, failure: Failure, *, status: int = CHECK_FAILED) -> list[Checked]:
    """Return a cross for each fault of a failure."""
    faults = failure.faults if isinstance(failure, Misconfigured) else (failure.message,)
    return [cross(subject, f"{failure.code}: {fault}", fix=failure.hint, status=status) for fault in faults]


def exit_status(lines: Sequence[Checked]) -> int:
    """Return 0 for ticks alone; else who must act first: settings, then dependencies, then the rest."""
    statuses = {one.status for one in lines if not one.ok}
    return next((status for status in (SETTINGS, DEPENDENCY, CHECK_FAILED) if status in statuses), OK)
