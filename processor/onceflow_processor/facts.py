"""What this process knows about facts, and what the batch in hand has claimed.

Rule: a wrong "free" costs one rerun (the tail finds the shortage and the batch is run again with the truth looked
up); a wrong "taken" would lose an effect.  So only facts read from the database, or committed by this process over
the present connection, are remembered as taken; a new connection begins with nothing, because the database behind it
may have been put back.  What the outcome topic alone knows, after such a restore, is kept for the cause that the topic names: taken
for every other, and free for that one until its row is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from onceflow_processor.effects import FactKey

REMEMBERED_MAX = 200_000
"""Taken facts kept in memory, oldest forgotten first; about 40 MB."""


class Facts:
    """Answers ``tx.once`` for one connection."""

    def __init__(self) -> None:
        self._taken: dict[FactKey, None] = {}
        self._claimed: dict[FactKey, str] = {}
        self._kept: dict[FactKey, str] = {}

    def claim(self, key: FactKey, cause: str) -> bool:
        """Claim a fact for a cause; False when it is taken, by this batch too."""
        if key in self._claimed or key in self._taken or self._kept.get(key, cause) != cause:
            return False
        self._claimed[key] = cause
        return True

    def give_back(self, keys: Iterable[FactKey]) -> None:
        """Forget claims of events whose work was rolled back."""
        for key in keys:
            self._claimed.pop(key, None)

    def claimed(self) -> dict[FactKey, str]:
        """Return the claims of the batch in hand with their causes, in the order of their keys."""
        return dict(sorted(self._claimed.items()))

    def roll_back(self) -> None:
        """Forget all claims of the batch in hand."""
        self._claimed.clear()

    def commit(self) -> None:
        """The batch is committed: its claims are taken from now on."""
        self.remember(self._claimed)
        self._claimed.clear()

    def remember(self, keys: Iterable[FactKey]) -> None:
        """Remember facts that the database says are taken."""
        self._taken.update(dict.fromkeys(keys))
        _forget_first(self._taken)

    def keep_for(self, causes: Mapping[FactKey, str]) -> None:
        """Remember facts that the database knows from the topic alone, each with the cause that may claim it."""
        self._kept.update(causes)
        _forget_first(self._kept)

    def forget_all(self) -> None:
        """A new connection: nothing is known."""
        self._taken.clear()
        self._claimed.clear()
        self._kept.clear()


def _forget_first(remembered: dict[FactKey, Any]) -> None:
    while len(remembered) > REMEMBERED_MAX:
        del remembered[next(iter(remembered))]
