"""One drift as a value.

Rule: what it is about stays the same from look to look, so that the same drift is one row.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """One drift.

    Attributes:
        kind: one of ``FINDING_KINDS``.
        subject: what it is about, in words that stay the same.
        account, mode: where it belongs to one.
        facts: ids, counts and times; nothing personal.
        amount, currency: money at stake, in the currency's smallest unit.
    """

    kind: str
    subject: str
    account: str | None = None
    mode: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    amount: int | None = None
    currency: str | None = None
