"""What a person may decide about an operation, as evidence for the table.

Rule: a person cannot make a second effect: cancel works only where nothing was sent or the intent can be closed, and a
retry is another operation with the next occurrence.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Literal
from uuid import UUID

from onceflow_schemas.failure import Refused
from onceflow_schemas.identity import operation_id
from onceflow_schemas.operations.advance import advance
from onceflow_schemas.operations.evidence import Evidence, Proof
from onceflow_schemas.operations.limits import LIMITS, Limits
from onceflow_schemas.operations.moves import Change
from onceflow_schemas.operations.operation import Operation, Role, State

RETRIED = frozenset({State.FAILED, State.CANCELED})

DECIDED = frozenset({Proof.RULED_SUCCEEDED, Proof.RULED_FAILED, Proof.ABANDONED})
"""Conclusions that a person has drawn."""

CLOSING = Evidence(proof=Proof.ABANDONED, detail="its cancel was asked for")
"""What makes a worker close the intent of a charge in review."""

_UNDER_WAY = frozenset({State.REQUESTED, State.SENDING, State.PENDING, State.UNKNOWN})


def check_cancel(operation: Operation) -> None:
    """Refuse a cancel that cannot happen; one that is allowed is only noted (``cancel_asked``), and ``decide`` does it.

    Raises:
        Refused: ``ruling_refused``: also when what became of it is known already.
    """
    _check_open(operation)
    if operation.state in _UNDER_WAY and len(operation.steps) > 1:
        return
    if operation.state is State.REQUESTED and operation.never_sent:
        return
    raise Refused("ruling_refused", f"it is {operation.state}, and may have been sent: it cannot be canceled any more")


def close_reviewed(operation: Operation, *, now: datetime, limits: Limits = LIMITS) -> Change:
    """Return the change when a person has the intent of a charge in review cancelled.

    Raises:
        Refused: ``ruling_refused``.
    """
    _check_open(operation)
    if operation.state is not State.REVIEW or operation.role not in (Role.CONFIRM, Role.CANCEL):
        raise Refused("ruling_refused", f"it is {operation.state}, and has no payment intent that could be canceled")
    return advance(operation, CLOSING, now=now, limits=limits)


def resolve(
    operation: Operation,
    outcome: Literal["succeeded", "failed"],
    *,
    reason: str,
    now: datetime,
    limits: Limits = LIMITS,
) -> Change:
    """Return the change when a person says how it ended.

    Raises:
        Refused: ``ruling_refused``: without a reason, or while evidence is still to be had or is there.
    """
    if not reason.strip():
        raise Refused("ruling_refused", "a decision needs a reason")
    _check_open(operation)
    if operation.state not in (State.REVIEW, State.UNKNOWN):
        raise Refused("ruling_refused", f"it is {operation.state}: only what is in review or unknown can be resolved")
    return advance(operation, ruling(outcome, reason), now=now, limits=limits)


def cancel(operation: Operation, *, now: datetime) -> Evidence | None:
    """Return what a cancel makes a worker do with an operation in review; None where it is only noted (``cancel_asked``).

    Raises:
        Refused: ``ruling_refused``.
    """
    if operation.state is not State.REVIEW:
        check_cancel(operation)
        return None
    close_reviewed(operation, now=now)
    return CLOSING


def allowed(operation: Operation, *, now: datetime) -> tuple[str, ...]:
    """Return the decisions that a person may take now, as the command line names them."""
    tried: dict[str, Callable[[], object]] = {
        "resolve": lambda: resolve(operation, "failed", reason="only asked", now=now),
        "cancel": lambda: cancel(operation, now=now),
        "retry": lambda: only_to_settle(operation) or retry(operation),
    }
    return tuple(name for name, decide in tried.items() if _passes(decide))


def _passes(decide: Callable[[], object]) -> bool:
    try:
        decide()
    except Refused:
        return False
    return True


def ruling(outcome: Literal["succeeded", "failed"], reason: str) -> Evidence:
    """Return what a person has decided, as evidence."""
    return Evidence(proof=Proof.RULED_SUCCEEDED if outcome == "succeeded" else Proof.RULED_FAILED, detail=reason)


def _check_open(operation: Operation) -> None:
    """Refuse a decision about what is decided: the proof is kept, and its settled callback is tried again."""
    if operation.conclusion is None:
        return
    proof = Proof(operation.conclusion["proof"])
    if proof in DECIDED:
        raise Refused("ruling_refused", f"a person has decided already ({proof}), and a worker settles it next")
    raise Refused("ruling_refused", f"what became of it is known ({proof}), and only its settled callback is due")


def only_to_settle(operation: Operation) -> bool:
    """Whether all that is due is to write down what is known, settled callback included: a retry has it done at once."""
    return operation.conclusion is not None


def retry(operation: Operation) -> tuple[int, UUID]:
    """Return occurrence and id of the operation that tries a failed one again.

    Raises:
        Refused: ``ruling_refused``: it has not failed.
    """
    if operation.state not in RETRIED:
        raise Refused("ruling_refused", f"it is {operation.state}: only what has failed or was canceled is tried again")
    occurrence = operation.occurrence + 1
    again = operation_id(
        account=operation.account,
        mode=operation.mode,
        effect=operation.effect,
        subject=operation.subject,
        occurrence=occurrence,
    )
    return occurrence, again
