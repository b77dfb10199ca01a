"""The count of operations: what was asked for, what stands in the table, and what really happened at Stripe.

Rule: pure.  What happened is read from the simulator's ledger, which no answer can hide anything from; a state in our
table is only a claim, and is held against it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

EFFECTS = frozenset({"charge", "refund"})
"""Kinds of the simulator's ledger that move money."""


@dataclass(frozen=True, slots=True)
class OperationEntry:
    """A row of the table; ``unknown``: an attempt of it had no answer, or one that proves nothing."""

    id: str
    effect: str
    subject: str
    state: str
    unknown: bool


@dataclass(frozen=True, slots=True)
class Movement:
    """An entry of the simulator's ledger; ``operation`` is empty for what a customer did."""

    kind: str
    operation: str
    amount: int
    currency: str


@dataclass(frozen=True, slots=True)
class OperationSums:
    """The sums, and every disagreement in words; ``declined`` have failed for certain, without an effect."""

    operations: int = 0
    effects: int = 0
    declined: int = 0
    were_unknown: int = 0
    in_review: int = 0
    lost: tuple[str, ...] = ()
    doubled: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()


def count_operations(
    planned: int, *, entries: Sequence[OperationEntry], movements: Sequence[Movement], declined: int
) -> OperationSums:
    """Compare what was planned with the table and with the simulator's ledger.

    Args:
        planned: how many operations were to be asked for.
        entries: the rows of the table.
        movements: the simulator's ledger.
        declined: how many of them a bank refuses.
    """
    effects = Counter(one.operation for one in movements if one.operation and one.kind in EFFECTS)
    states = Counter(one.state for one in entries)
    return OperationSums(
        operations=len(entries),
        effects=sum(1 for one in entries if effects[one.id]),
        declined=states["failed"],
        were_unknown=sum(1 for one in entries if one.unknown),
        in_review=states["review"],
        lost=tuple(_lost(planned, entries, effects)),
        doubled=tuple(f"{times} effects of operation {name}" for name, times in effects.items() if times > 1),
        wrong=tuple(_wrong(planned, entries, effects, declined=declined)),
    )


def _lost(planned: int, entries: Sequence[OperationEntry], effects: Counter[str]) -> Iterator[str]:
    if len(entries) < planned:
        yield f"{planned - len(entries)} operations that were asked for are not in the table"
    for one in entries:
        if one.state == "succeeded" and not effects[one.id]:
            yield f"operation {one.id} ({one.effect}) is said to have succeeded, and nothing happened"


def _wrong(planned: int, entries: Sequence[OperationEntry], effects: Counter[str], *, declined: int) -> Iterator[str]:
    if len(entries) > planned:
        yield f"{len(entries)} operations, where {planned} were asked for"
    for one in entries:
        if one.state not in ("succeeded", "failed"):
            yield f"operation {one.id} ({one.effect}) is {one.state}"
        elif one.state == "failed" and effects[one.id]:
            yield f"operation {one.id} ({one.effect}) is said to have failed, and it happened"
    known = {one.id for one in entries}
    yield from (
        f"an effect at Stripe of an operation that is not in the table: {name}" for name in effects.keys() - known
    )
    failed = sum(1 for one in entries if one.state == "failed")
    if failed != declined:
        yield f"{failed} operations have failed, where {declined} cards are declined"
