"""The states of an event and every legal change between them, as one table.

Rule: what is not in the table does not happen.  The diagram in docs/reference/events.md is made from it, and the words are
those that the table ``inbox`` allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class State(StrEnum):
    """Where an event is; NEW is one without a marker."""

    NEW = "new"
    PROCESSED = "processed"
    IGNORED = "ignored"
    PARKED = "parked"
    QUARANTINED = "quarantined"


class Happening(StrEnum):
    """What happens to an event."""

    HANDLED = "its handlers went well"
    UNWANTED = "no handler has its type"
    WAITS = "it is to be tried later, or stands behind another"
    FAILED = "it failed for good"
    RETRY_ASKED = "a person asks for a retry"
    SKIPPED = "a person skips it"


STORED = tuple(state for state in State if state is not State.NEW)
"""The states that a marker can have."""

FINAL = frozenset({State.PROCESSED, State.IGNORED})

MOVES: Mapping[tuple[State, Happening], State] = MappingProxyType(
    {
        (State.NEW, Happening.HANDLED): State.PROCESSED,
        (State.NEW, Happening.UNWANTED): State.IGNORED,
        (State.NEW, Happening.WAITS): State.PARKED,
        (State.NEW, Happening.FAILED): State.QUARANTINED,
        (State.PARKED, Happening.HANDLED): State.PROCESSED,
        (State.PARKED, Happening.UNWANTED): State.IGNORED,
        (State.PARKED, Happening.WAITS): State.PARKED,
        (State.PARKED, Happening.FAILED): State.QUARANTINED,
        (State.PARKED, Happening.RETRY_ASKED): State.PARKED,
        (State.PARKED, Happening.SKIPPED): State.QUARANTINED,
        (State.QUARANTINED, Happening.RETRY_ASKED): State.PARKED,
        (State.QUARANTINED, Happening.SKIPPED): State.QUARANTINED,
    }
)


def move(state: State, happening: Happening) -> State:
    """Return the state after something has happened; what cannot happen is a bug.

    Args:
        state: before.
        happening: what happens.
    """
    after = MOVES.get((state, happening))
    if after is None:
        message = f"an event that is {state} cannot meet: {happening}"
        raise AssertionError(message)
    return after
