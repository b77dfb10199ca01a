"""The form of a failure code: who must act, what it means, what to do next.

Rule: no code exists without a next step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Actor = Literal["sender", "operator", "nobody", "developer"]


@dataclass(frozen=True, slots=True)
class FailureKind:
    """One code: who must act (``nobody`` = it heals alone), what it means, and the next step."""

    code: str
    actor: Actor
    meaning: str
    hint: str


def kinds(actor: Actor, *rows: tuple[str, str, str]) -> dict[str, FailureKind]:
    """Return a table of codes for one actor from rows of (code, meaning, next step)."""
    return {code: FailureKind(code, actor, meaning, hint) for code, meaning, hint in rows}
