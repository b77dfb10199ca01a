"""What this process knows about facts, and what the batch in hand has claimed.

Rule: a wrong "free" costs one rerun (the tail finds the shortage and the batch is run again with the truth looked
up); a wrong "taken" would lose an effect.  So only facts read from the database, or committed by this process over
the present connection, are remembered as taken; a new connection begins with nothing, because the database behind it
may have been put back.
"""

from __future__ import annotations

from collections.abc import Iterable

from onceflow_processor.effects import FactKey

REMEMBERED_MAX = 200_000
"""Taken facts kept in memory, oldest forgotten first; about 40 MB."""


class Facts:
    """Answers ``tx.once`` for one connection."""

    def __init__(self) -> None:
        self._taken: dict[FactKey, None] = {}
        self._claimed: dict[FactKey, str] = {}

    def claim(self, key: FactKey, cause: str) -> bool:
        """Claim a fact for a cause; False when it is taken, by this batch too."""
        if key in self._claimed or key in self._taken:
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
        while len(self._taken) > REMEMBERED_MAX:
            del self._taken[next(iter(self._taken))]

    def forget_all(self) -> None:
        """A new connection: nothing is known."""
        self._taken.clear()
        self._claimed.clear()
