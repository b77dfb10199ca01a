"""What this process knows about operations, and what the batch in hand has asked for.

Rule: as with facts, not knowing costs one rerun and nothing else: the tail finds an id that somebody asked for with other
arguments, the batch is run again with the truth looked up, and the handler gets the conflict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from onceflow_processor.operations.request import Asked
from onceflow_schemas.failure import Refused
from onceflow_schemas.quoting import quoted

REMEMBERED_MAX = 50_000
"""Ids with the hash of their arguments, oldest forgotten first; about 15 MB."""


class OperationConflict(Refused):
    """The operation exists already, and was asked for with other arguments, or another order key.

    A change of mind needs another subject, or the next occurrence.
    """

    def __init__(self, asked: Asked) -> None:
        what = f"effect {asked.effect!r}, subject {quoted(asked.subject)}, occurrence {asked.occurrence}"
        super().__init__("operation_conflict", f"{what} was asked for before with other arguments or another order_key")


class AskedByNeighbour(BaseException):
    """An event of the same batch asked for it with other arguments, and whether that one will be written is not known yet.

    Not an Exception, so that no handler's ``except Exception`` takes it for a conflict.
    """


class AskedOperations:
    """Answers ``tx.request`` for one connection."""

    def __init__(self) -> None:
        self._known: dict[UUID, bytes] = {}
        self._asked: dict[UUID, Asked] = {}
        # Whether a handler has met an ``AskedByNeighbour`` since the last rollback, even if it swallowed it.
        self.met_neighbour = False

    def ask(self, asked: Asked) -> bool:
        """Note an operation; False when it is known with the same arguments, so that nothing is to be written.

        Raises:
            OperationConflict: it is known with other arguments.
            AskedByNeighbour: what was asked for before must be committed first; the batch is cut here.
        """
        other = self._asked.get(asked.id)
        known = self._known.get(asked.id) if other is None else other.args_sha256
        if known is None:
            self._asked[asked.id] = asked
            return True
        if known == asked.args_sha256:
            return False
        if other is not None and other.cause != asked.cause:
            self.met_neighbour = True
            raise AskedByNeighbour
        raise OperationConflict(asked)

    def give_back(self, asked: Iterable[Asked]) -> None:
        """Forget what events asked for whose work was rolled back."""
        for one in asked:
            self._asked.pop(one.id, None)

    def asked(self) -> list[Asked]:
        """Return what the batch in hand asks for, in the order of asking."""
        return list(self._asked.values())

    def roll_back(self) -> None:
        """Forget all that the batch in hand has asked for."""
        self._asked.clear()
        self.met_neighbour = False

    def commit(self) -> None:
        """The batch is committed: what it asked for is known from now on."""
        if self._asked:
            self.remember({one.id: one.args_sha256 for one in self._asked.values()})
            self._asked.clear()

    def remember(self, known: Mapping[UUID, bytes]) -> None:
        """Remember operations that the database has, with the hash of their arguments."""
        self._known.update(known)
        while len(self._known) > REMEMBERED_MAX:
            del self._known[next(iter(self._known))]

    def forget_all(self) -> None:
        """A new connection: nothing is known."""
        self._known.clear()
        self.roll_back()
