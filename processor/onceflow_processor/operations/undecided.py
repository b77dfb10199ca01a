"""A leased row that no rule can be applied to: it is put before a person, or left alone, and costs no other anything.

Rule: whatever a row holds, and whatever fault of ours meets it, ends with that row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import orjson

from onceflow_processor.operations.plan import Planned, plan
from onceflow_processor.operations.rows import Claimed, Write, claimed_from
from onceflow_schemas.operations.decide import Review, into_review
from onceflow_schemas.operations.limits import Limits
from onceflow_schemas.operations.operation import SETTLED, State

UNDECIDED = "operation_undecided"
UNREADABLE = "operation_unreadable"
REASON_CHARS_MAX = 300
CONCLUSION_CHARS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Undecided:
    """An operation that no rule can be applied to.

    Attributes:
        id: its id.
        code: ``operation_undecided``: read, and put before a person; ``operation_unreadable``: left alone until its lease
            ends, since another release may be able to read it.
        error: the kind of the error; what it says may quote data, and stands in the review.
    """

    id: UUID
    code: str
    error: str


def plan_each(row: Mapping[str, Any], *, limits: Limits) -> tuple[Planned | None, Undecided | None]:
    """Return what to do about a row of the query ``claim``, and what is wrong where no rule can be applied to it."""
    try:
        claimed = claimed_from(row)
    except Exception as error:  # noqa: BLE001 - one row must not stop the others, whatever it holds.
        return None, Undecided(row["id"], UNREADABLE, type(error).__name__)
    try:
        return plan(claimed, limits=limits), None
    except Exception as error:  # noqa: BLE001 - as above.
        return put_aside(claimed, error), Undecided(row["id"], UNDECIDED, type(error).__name__)


def reason_of(error: Exception) -> str:
    """Return an error in one line."""
    return f"{type(error).__name__}: {error}"[:REASON_CHARS_MAX]


def put_aside(claimed: Claimed, error: Exception) -> Planned:
    """Return the row of what no rule can be applied to: at rest it stays so, anything else is for a person."""
    operation = replace(claimed.operation, look_asked=False)
    if operation.state in SETTLED or operation.state is State.REVIEW:
        return Planned(released=Write.of(replace(claimed, operation=operation)))
    detail = reason_of(error)
    if operation.conclusion is not None:
        # A person can say how it ended only while nothing is proved; what was noted is for that person to read.
        detail += f"; noted as proved: {orjson.dumps(operation.conclusion).decode()[:CONCLUSION_CHARS_MAX]}"
    change = into_review(operation, Review(UNDECIDED, detail))
    operation = replace(operation, state=change.state, conclusion=None)
    return Planned(released=Write.of(replace(claimed, operation=operation)), review=change.review)
