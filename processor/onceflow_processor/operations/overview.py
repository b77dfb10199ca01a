"""What people see of operations: a list, and everything about one.

Rule: it only reads.  Times are the database's, and the words come from the decision that a worker would take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import Connection
from psycopg.rows import dict_row

from onceflow_processor.operations.explanation import Around, explain
from onceflow_processor.operations.rows import Claimed, claimed_from
from onceflow_processor.operations.undecided import reason_of
from onceflow_schemas.failure import Refused
from onceflow_schemas.operations.evidence import UNSENT
from onceflow_schemas.operations.limits import LIMITS, Limits
from onceflow_schemas.operations.operation import Operation
from onceflow_schemas.operations.rulings import allowed
from onceflow_schemas.sql import queries

ATTEMPTS_MAX = 200
HINTS_MAX = 100

_UNSENT = sorted(proof.value for proof in UNSENT)
_SQL = queries("operation_rulings")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which operations are listed; None means any.

    Attributes:
        states, effect, account, order_key, subject: what they are.
        before: only those asked for before the one with this number (``seq``), for the next page.
    """

    states: tuple[str, ...] | None = None
    effect: str | None = None
    account: str | None = None
    order_key: str | None = None
    subject: str | None = None
    before: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """An operation as it was read.

    Attributes:
        claimed: as a worker would have it.
        around: what else has a say.
        facts: number, cause, kind and times, for people.
        steps: its frozen calls as they are stored (JSON).
    """

    claimed: Claimed
    around: Around
    facts: Mapping[str, Any]
    steps: str

    @property
    def operation(self) -> Operation:
        """The operation."""
        return self.claimed.operation

    @property
    def now(self) -> datetime:
        """The database's clock when it was read."""
        return self.claimed.read_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Everything about an operation: attempts, what webhooks said, reviews, why it stands so, what may be decided."""

    read: Read
    attempts: Sequence[Mapping[str, Any]]
    hints: Sequence[Mapping[str, Any]]
    reviews: Sequence[Mapping[str, Any]]
    why: str
    decisions: tuple[str, ...]


def list_operations(connection: Connection[Any], wanted: Filter, *, count: int) -> list[dict[str, Any]]:
    """Return operations, the latest first; ``seq`` of the last one is ``before`` of the next page.

    Args:
        connection: idle; left idle.
        wanted: which.
        count: how many at most.
    """
    given = {**asdict(wanted), "states": None if wanted.states is None else list(wanted.states), "count": count}
    with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_SQL["listed"], given).fetchall()


def list_accounts(connection: Connection[Any]) -> list[dict[str, Any]]:
    """Return what each account may send, and why not; left idle."""
    with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_SQL["accounts"]).fetchall()


def show_operation(connection: Connection[Any], operation_id: UUID, *, limits: Limits = LIMITS) -> Shown:
    """Return everything about an operation.

    Args:
        connection: idle; left idle.
        operation_id: its id.
        limits: as the workers have them.

    Raises:
        Refused: ``operation_missing``, ``operation_unreadable``.
    """
    given = {"id": operation_id}
    with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
        read = read_operation(connection, operation_id)
        attempts = cursor.execute(_SQL["attempts"], {**given, "count": ATTEMPTS_MAX}).fetchall()
        hints = cursor.execute(_SQL["hints"], {**given, "count": HINTS_MAX}).fetchall()
        reviews = cursor.execute(_SQL["reviews"], given).fetchall()
    return Shown(
        read=read,
        attempts=attempts,
        hints=hints,
        reviews=reviews,
        why=_explained(read, limits),
        decisions=_allowed(read),
    )


def _explained(read: Read, limits: Limits) -> str:
    """The words, also where the rules cannot be applied: then a person needs all the rest the more."""
    try:
        return explain(read.operation, read.around, now=read.now, limits=limits)
    except Exception as error:  # noqa: BLE001 - what is shown must not depend on what the row holds.
        return f"What happens next cannot be told (operation_undecided): {reason_of(error)}"


def _allowed(read: Read) -> tuple[str, ...]:
    try:
        return allowed(read.operation, now=read.now)
    except Exception:  # noqa: BLE001 - as above.
        return ()


def read_operation(connection: Connection[Any], operation_id: UUID) -> Read:
    """Return an operation as a worker would read it, in the transaction at hand.

    Raises:
        Refused: ``operation_missing``, ``operation_unreadable``.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(_SQL["operation"], {"id": operation_id, "unsent": _UNSENT}).fetchone()
    if row is None:
        raise Refused("operation_missing", f"there is no operation {operation_id}")
    try:
        claimed = claimed_from(row)
    except Exception as error:
        message = f"operation {operation_id} in state {row['state']} cannot be read: {reason_of(error)}"
        raise Refused("operation_unreadable", message) from error
    return Read(
        claimed=claimed,
        around=Around(
            next_attempt_at=row["next_attempt_at"],
            lease_owner=row["lease_owner"],
            lease_until=row["lease_until"],
            before=None if row["before_id"] is None else (row["before_id"], row["before_state"]),
            blocked_until=row["blocked_until"],
            paused_reason=row["paused_reason"],
        ),
        facts={name: row[name] for name in ("seq", "cause", "kind", "settled_at")},
        steps=row["steps"],
    )
