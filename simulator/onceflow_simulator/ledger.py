"""The truth: what really happened to money, counted apart from every object and every answer.

Rule: an entry is written at the moment at which money moves, and is never changed.  No request of Stripe's interface
reads or writes it, so a wrong answer, a lost answer or a wrong object cannot hide an effect.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal[
    "charge", "authorization", "refund", "refund_failed", "cancel", "intent", "dispute", "payout", "transfer"
]
OPERATION = "onceflow_operation"
"""The metadata whose value names what an effect was for."""


@dataclass(frozen=True)
class Entry:
    """One effect.

    Args:
        at: seconds of the simulator's clock.
        kind: "charge" is money taken (at capture for a manual one), "refund" is money given back; "authorization",
            "cancel", "intent" move none.
        parent: the object that it happened to, such as the charge of a refund.
        key: the idempotency key of the request that caused it.
        metadata: of the object, as it was then.
    """

    at: float
    account: str
    livemode: bool
    kind: Kind
    object: str
    amount: int
    currency: str
    metadata: Mapping[str, str]
    parent: str | None = None
    key: str | None = None
    request_id: str | None = None

    @property
    def operation(self) -> str:
        """Metadata ``onceflow_operation`` of the object, else the idempotency key, else ""."""
        return self.metadata.get(OPERATION) or self.key or ""


class Ledger:
    """All effects of all accounts."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def record(self, entry: Entry) -> None:
        """Write an effect down, at the moment at which it happens."""
        self._entries.append(entry)

    def clear(self) -> None:
        """Begin anew."""
        self._entries.clear()

    def report(self, *, by: str | None = None, kind: str | None = None, entries: bool = True) -> dict[str, Any]:
        """Entries (``n`` from 1, in the order in which things happened), their number per account, kind and operation, and totals.

        Args:
            by: a metadata name to count by, instead of the operation.
            kind: only this one.
            entries: False leaves the single entries out.
        """
        numbered = [(n, entry) for n, entry in enumerate(self._entries, 1) if kind is None or entry.kind == kind]
        chosen = [entry for _, entry in numbered]
        counts: dict[tuple[str, str, str], list[Entry]] = defaultdict(list)
        for entry in chosen:
            name = entry.operation if by is None else entry.metadata.get(by, "")
            counts[entry.account, entry.kind, name].append(entry)
        totals: dict[str, dict[str, Any]] = {}
        for entry in chosen:
            total = totals.setdefault(entry.kind, {"count": 0, "amounts": {}})
            total["count"] += 1
            total["amounts"][entry.currency] = total["amounts"].get(entry.currency, 0) + entry.amount
        return {
            "counts": [_count(key, group) for key, group in counts.items()],
            "totals": totals,
            "entries": [_told(n, entry) for n, entry in numbered] if entries else [],
        }


def _told(n: int, entry: Entry) -> dict[str, Any]:
    return {"n": n, **asdict(entry), "operation": entry.operation}


def _count(key: tuple[str, str, str], group: list[Entry]) -> dict[str, Any]:
    account, kind, operation = key
    return {
        "account": account,
        "kind": kind,
        "operation": operation,
        "count": len(group),
        "amount": sum(entry.amount for entry in group),
        "objects": [entry.object for entry in group],
    }
