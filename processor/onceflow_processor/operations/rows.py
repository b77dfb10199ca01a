"""An operation's row as a value, as it is read and as it is to be written.

Rule: values in, values out; what a column means is said by the types in ``schemas``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from onceflow_schemas.operations.evidence import Proof
from onceflow_schemas.operations.freeze import steps_from
from onceflow_schemas.operations.operation import Operation, State

_INTEGER_MAX = 2**63 - 1
_UNSAFE_TEXT = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """An operation as it was leased.

    Attributes:
        operation: as its row said.
        attempts: number of its last attempt, 0 before the first.
        in_hand_at: when the attempt was made that nobody has settled; None without one.
        look_at: the object that a webhook named, None for the stored one.
        surplus: intents that are to be cancelled.
        read_at: the database's clock.
    """

    operation: Operation
    attempts: int
    in_hand_at: datetime | None
    look_at: str | None
    surplus: tuple[str, ...]
    read_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """What a row shall say; ``keep_lease`` while a call is to be made, else it is given up until ``next_attempt_at``."""

    operation: Operation
    look_at: str | None
    surplus: tuple[str, ...]
    next_attempt_at: datetime | None
    keep_lease: bool

    @classmethod
    def of(cls, claimed: Claimed, *, next_attempt_at: datetime | None = None, keep_lease: bool = False) -> Write:
        """Return the row of an operation as it is in memory."""
        return cls(
            operation=claimed.operation,
            look_at=claimed.look_at,
            surplus=claimed.surplus,
            next_attempt_at=next_attempt_at,
            keep_lease=keep_lease,
        )


def claimed_from(row: Mapping[str, Any]) -> Claimed:
    """Return an operation from a row of the query ``claim``.

    Raises:
        Exception: of any kind, when the row holds what this release does not know.
    """
    proof = row["last_proof"]
    operation = Operation(
        id=row["id"],
        account=row["account"],
        mode=row["mode"],
        effect=row["effect"],
        subject=row["subject"],
        occurrence=row["occurrence"],
        order_key=row["order_key"],
        args=orjson.loads(row["args"]),
        state=State(row["state"]),
        steps=steps_from(orjson.loads(row["steps"])),
        step=row["step"],
        api_version=row["api_version"],
        requested_at=row["requested_at"],
        window_from=row["window_from"],
        external_id=row["external_id"],
        fence=row["fence"],
        tries=row["tries"],
        sent=row["sent"],
        last_sent_at=row["last_sent_at"],
        last_proof=None if proof is None else Proof(proof),
        restored=row["restored"],
        looked_up_at=row["looked_up_at"],
        action_until=row["action_until"],
        conclusion=_json(row["conclusion"]),
        cancel_asked=row["cancel_asked"],
        look_asked=row["look_asked"],
        review_code=row["review_code"],
        told=tuple(row["told"]),
        last_error=row["last_error"],
        result=_json(row["result"]),
    )
    _ = operation.role  # Every rule asks for it, and so does whatever a person decides.
    return Claimed(
        operation=operation,
        attempts=row["attempts"],
        in_hand_at=row["in_hand_at"],
        look_at=row["look_at"],
        surplus=tuple(row["surplus"]),
        read_at=row["read_at"],
    )


def plain(text: str | None) -> str | None:
    """Replace what PostgreSQL's text cannot hold: an answer may quote anything."""
    return None if text is None else _UNSAFE_TEXT.sub("\N{REPLACEMENT CHARACTER}", text)


def json_text(value: Mapping[str, Any] | None) -> str | None:
    """Return a mapping as JSON that PostgreSQL can also read the parts of: without NUL characters."""
    if value is None:
        return None
    return orjson.dumps(_storable(value), default=str).decode()


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, Mapping):
        return {plain(str(name)): _storable(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(inner) for inner in value]
    # Larger than any amount, and than what the JSON library writes: only its text is worth keeping.
    return str(value) if isinstance(value, int) and abs(value) > _INTEGER_MAX else value


def _json(text: str | None) -> dict[str, Any] | None:
    return None if text is None else orjson.loads(text)
