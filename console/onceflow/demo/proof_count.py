"""What Stripe would list of what was sent, and what the proof has counted.

Rule: pure; what is listed is told from the plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Proved:
    """What ``onceflow verify`` counted."""

    events: int
    unexplained: int
    differences: tuple[str, ...] = ()


def listable(bodies: Iterable[bytes]) -> list[dict[str, Any]]:
    """Return the events that Stripe's list would show of what was sent, in the order of their times.

    Args:
        bodies: of validly signed requests that Stripe could have made; what is no event of ours, or stands there twice, is left out.
    """
    found: dict[str, dict[str, Any]] = {}
    for body in bodies:
        try:
            told = json.loads(body)
        except ValueError:
            continue
        if _is_event(told):
            found.setdefault(told["id"], told)
    return sorted(found.values(), key=lambda event: int(event["created"]))


def _is_event(told: object) -> bool:
    if not isinstance(told, dict) or told.get("livemode") is not False or told.get("account") is not None:
        return False
    data, created = told.get("data"), told.get("created")
    subject = data.get("object") if isinstance(data, dict) else None
    texts = (told.get("id"), told.get("type"))
    return (
        isinstance(subject, dict)
        and isinstance(created, int)
        and not isinstance(created, bool)
        and all(isinstance(text, str) and text for text in texts)
    )
