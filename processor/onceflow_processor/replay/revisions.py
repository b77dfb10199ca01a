"""What a rerun changes: the outcomes that it asks for beside those that there are.

Rule: equal canonical bytes are unchanged, and what changed becomes the next revision of the same outcome.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from onceflow_processor.effects import Outcome
from onceflow_schemas.identity import outcome_id


class Change(StrEnum):
    """What became of an outcome."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    NEW = "new"
    GONE = "gone"


class Stored(NamedTuple):
    """The highest revision of an outcome that there is."""

    revision: int
    value: bytes


class Known(NamedTuple):
    """An outcome that an event gave."""

    outcome_id: UUID
    type: str
    key: str
    cause: str


class Compared(NamedTuple):
    """An outcome of a rerun; ``outcome`` carries the revision that it has or would have."""

    change: Change
    outcome: Outcome


def compare(made: Iterable[Outcome], stored: Mapping[UUID, Stored]) -> list[Compared]:
    """Compare what a rerun asks for with what there is.

    Args:
        made: as the handlers asked for it.
        stored: the highest revisions of the same ids.
    """
    compared = []
    for outcome in made:
        known = stored.get(outcome.outcome_id)
        if known is None:
            compared.append(Compared(Change.NEW, outcome))
        elif known.value == outcome.value:
            compared.append(Compared(Change.UNCHANGED, outcome._replace(revision=known.revision)))
        else:
            compared.append(Compared(Change.CHANGED, outcome._replace(revision=known.revision + 1)))
    return compared


def gone(known: Sequence[Known], made: Iterable[Outcome], *, left_out: Iterable[str]) -> list[Known]:
    """Return the outcomes of an event that its rerun does not ask for any more.

    Args:
        known: all that the event gave.
        made: what its rerun asks for.
        left_out: handlers that did not run: what they gave is not gone.  An outcome does not say whose it is, so their ids
            are made again.
    """
    kept = {outcome.outcome_id for outcome in made}
    names = list(left_out)
    for one in known:
        same = sum(1 for other in known if (other.type, other.key) == (one.type, one.key))
        kept.update(
            outcome_id(cause=one.cause, handler=name, type=one.type, key=one.key, n=n)
            for name in names
            for n in range(1, same + 1)
        )
    return [one for one in known if one.outcome_id not in kept]
