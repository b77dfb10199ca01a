"""What has been applied of the objects of a batch, and what each of its events therefore is.

Rule: an event advances its object's guard only when all its handlers went well, so a later event of the same batch sees it
only then, and one that failed or waits leaves no trace.  Nothing is remembered beyond the transaction that holds the locks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from onceflow_processor.event import Event, NotRecorded, Previous
from onceflow_schemas.identity import Identity
from onceflow_schemas.object_order import ObjectState, Order, applied_after, compare

GuardKey = tuple[str, str, str]
"""Account, mode, object id."""


@dataclass(frozen=True, slots=True)
class Placed:
    """An event beside what was applied of its object before.

    ``is_read`` when what it offers was read at Stripe; ``is_recorded`` when it runs again: its order is recorded, what was
    applied before it is not.
    """

    identity: Identity
    key: GuardKey
    order: Order
    applied: ObjectState | None
    offered: ObjectState
    is_read: bool = False
    is_recorded: bool = False

    def shown(self, event: Event) -> Event:
        """Return the event as its handlers see it."""
        applied = self.applied
        previous = (
            None if applied is None else Previous(applied.event_id, applied.type, applied.created, applied.status)
        )
        before = NotRecorded.NOT_RECORDED if self.is_recorded else previous
        return replace(event, is_stale=self.order is Order.OLDER, applied_before=before)


class Guards:
    """Answers, for one transaction, what an event is to its object."""

    def __init__(self) -> None:
        self._locked: Mapping[GuardKey, ObjectState | None] = {}
        self._offered: Mapping[Identity, tuple[GuardKey, ObjectState]] = {}
        # What events of this batch have applied since, the latest last.
        self._moves: dict[GuardKey, list[tuple[Identity, ObjectState]]] = {}

    def begin(
        self,
        locked: Mapping[GuardKey, ObjectState | None],
        offered: Mapping[Identity, tuple[GuardKey, ObjectState]],
    ) -> None:
        """The rows are locked: what was applied of each object, and what each event of the batch tells."""
        self._locked = locked
        self._offered = offered
        self._moves.clear()

    def place(self, identity: Identity) -> Placed | None:
        """Say what an event is; None when no handler of its type asks for an order, or it is about no object."""
        found = self._offered.get(identity)
        if found is None:
            return None
        key, offered = found
        applied = self._applied(key)
        return Placed(identity, key, compare(applied, offered), applied, offered)

    def advance(self, placed: Placed) -> None:
        """All handlers of the event went well."""
        after = applied_after(placed.applied, placed.offered, order=placed.order)
        if after is not placed.applied:
            self._moves.setdefault(placed.key, []).append((placed.identity, after))

    def give_back(self, placed: Placed) -> None:
        """Forget what an event applied, because its work was rolled back; those after it are given back too."""
        kept = [move for move in self._moves.get(placed.key, ()) if move[0] != placed.identity]
        if kept:
            self._moves[placed.key] = kept
        else:
            self._moves.pop(placed.key, None)

    def moved(self) -> dict[GuardKey, ObjectState]:
        """Return what the tail writes, in the order of the keys."""
        return {key: moves[-1][1] for key, moves in sorted(self._moves.items())}

    def end(self) -> None:
        """The transaction is over, and with it the locks."""
        self._locked, self._offered = {}, {}
        self._moves.clear()

    def _applied(self, key: GuardKey) -> ObjectState | None:
        moves = self._moves.get(key)
        return moves[-1][1] if moves else self._locked.get(key)
