"""What an event that runs again is told: facts, running totals, operations and its place, as at its first run.

Rule: an answer that was given is given again, so that nothing but the mended handler can change what it asks for.  Truth is
read over a connection of its own, because the handlers' transaction may be in any state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any
from uuid import UUID

from psycopg import Connection

from onceflow_processor.effects import FactKey
from onceflow_processor.facts import Facts
from onceflow_processor.guards import GuardKey, Guards, Placed
from onceflow_processor.operations.asked import AskedOperations, OperationConflict
from onceflow_processor.operations.request import Asked
from onceflow_schemas.identity import Identity
from onceflow_schemas.object_order import ObjectState, Order
from onceflow_schemas.sql import queries

_SQL = queries("replay")
_REQUESTS = queries("operation_requests")


class RecordedFacts(Facts):
    """Answers ``tx.once``: True where the fact's cause is this very event, else as it is recorded."""

    def __init__(self, reader: Connection[Any]) -> None:
        super().__init__()
        self._reader = reader
        # Facts of the event itself that were given again: the second claim in one event is answered False, as at first.
        self._given: set[FactKey] = set()

    def claim(self, key: FactKey, cause: str) -> bool:
        """Answer as at the first run; a fact that nobody has, or that the topic alone knows of this event, is claimed."""
        if key in self._given:
            return False
        row = self._reader.execute(_SQL["fact_cause"], {"namespace": key[0], "key": key[1]}).fetchone()
        if row is not None and row[0] != cause:
            return False
        if row is None or not row[1]:
            return super().claim(key, cause)
        self._given.add(key)
        return True

    def give_back(self, keys: Iterable[FactKey]) -> None:
        """Forget claims of an event whose work was rolled back."""
        keys = list(keys)
        self._given.difference_update(keys)
        super().give_back(keys)


class RecordedOperations(AskedOperations):
    """Answers ``tx.request``: one that exists is never written again; ``met`` tells what was found of each.

    ``told`` are new ones that other events of this run have asked for, and that were not allowed: each is new once.
    """

    def __init__(self, reader: Connection[Any], told: Collection[UUID]) -> None:
        super().__init__()
        self._reader = reader
        self._told = told
        self._told_here: set[UUID] = set()
        self.met: list[tuple[str, Asked]] = []

    def ask(self, asked: Asked) -> bool:
        """Note an operation as ``exists``, ``new``, ``repeat`` (of a new one) or ``conflict``.

        Raises:
            OperationConflict: it exists with other arguments.
        """
        rows = self._reader.execute(_REQUESTS["known_operations"], {"ids": [asked.id]}).fetchall()
        known = {row[0]: bytes(row[1]) for row in rows} | {one.id: one.args_sha256 for one in self.asked()}
        if asked.id not in known:
            is_repeat = asked.id in self._told or asked.id in self._told_here
            self._told_here.add(asked.id)
            self.met.append(("repeat" if is_repeat else "new", asked))
            return super().ask(asked)
        if known[asked.id] != asked.args_sha256:
            self.met.append(("conflict", asked))
            raise OperationConflict(asked)
        self.met.append(("exists", asked))
        return False


class RecordedGuards(Guards):
    """Says what an event was to its object at its first run; nothing is advanced."""

    def __init__(
        self, offered: Mapping[Identity, tuple[GuardKey, ObjectState]], stale: Mapping[Identity, bool | None]
    ) -> None:
        super().__init__()
        self._states = offered
        self._stale = stale

    def place(self, identity: Identity) -> Placed | None:
        """Return its place as the marker has it; what was applied before it is not recorded."""
        found = self._states.get(identity)
        if found is None:
            return None
        key, state = found
        order = {True: Order.OLDER, False: Order.SAME, None: Order.NEWER}[self._stale.get(identity)]
        return Placed(identity, key, order, None, state, is_recorded=True)

    def advance(self, placed: Placed) -> None:
        """The guard has been there already."""


class RecordedTotals:
    """Answers ``tx.book``: what this event added at its first run; ``made`` are totals that it raises now."""

    def __init__(self, reader: Connection[Any]) -> None:
        self._reader = reader
        self._given: set[tuple[FactKey, str]] = set()
        self.made: list[tuple[FactKey, str, int, int]] = []

    def difference(self, key: FactKey, *, cause: str, total: int) -> int | None:
        """Return the recorded difference; None where the total is to be raised now."""
        if (key, cause) in self._given:
            return 0
        given = {"namespace": key[0], "key": key[1], "cause": cause}
        known, difference = self._reader.execute(_SQL["booked_by"], given).fetchone() or (-1, None)
        if difference is not None:
            self._given.add((key, cause))
            return int(difference)
        return 0 if total <= known else None
