"""What to do with an operation now: send, look, wait, settle, or ask a person.

Rule: nothing is sent blindly.  Inside the safe window an unknown step is sent again with its key; after it every send, a
first one too, follows a complete look-up that found nothing; and what may have been sent and cannot be found is for a person.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from onceflow_schemas.operations.evidence import Evidence, Proof, evidence_from
from onceflow_schemas.operations.limits import LIMITS, Limits
from onceflow_schemas.operations.lookup import how_to_look
from onceflow_schemas.operations.moves import Change
from onceflow_schemas.operations.operation import SETTLED, Operation, Policy, Role, State, Step


@dataclass(frozen=True, slots=True)
class Send:
    """Send the present step; ``in_window``: only as long as the safe window is open, by the database clock."""

    step: Step
    in_window: bool


@dataclass(frozen=True, slots=True)
class LookUp:
    """Look what became of the present step (``lookup.how_to_look``)."""

    step: Step
    how: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing until then; for ever when ``until`` is None."""

    until: datetime | None
    why: str


@dataclass(frozen=True, slots=True)
class Settle:
    """Advance the operation by this, without a call."""

    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Review:
    """Only a person may decide; ``into_review`` says what is written."""

    code: str
    detail: str


Decision = Send | LookUp | Wait | Settle | Review


def decide(operation: Operation, *, now: datetime, limits: Limits = LIMITS) -> Decision:
    """Return what to do with an operation that is due.

    Args:
        operation: as read, its lease in hand.
        now: database clock.
        limits: window, waits.
    """
    state = operation.state
    if operation.conclusion is not None:
        return Settle(evidence_from(operation.conclusion))
    if state in SETTLED or state is State.REVIEW:
        return _at_rest(operation)
    if state is State.SENDING:
        return Settle(Evidence(proof=Proof.LEASE_EXPIRED, detail="the worker that was sending went away"))
    if abandoned := _abandoned(operation, now):
        return abandoned
    if state is State.PENDING and operation.role is not Role.CANCEL:
        return _look(operation) or _unproved("nothing can be looked up, and the other side has not decided")
    if operation.last_proof is Proof.REFUSED:
        return _after_refusal(operation, now, limits)
    if operation.last_proof is Proof.KEY_MISMATCH:
        return _after_key_mismatch(operation, now, limits)
    if operation.last_proof is Proof.STORED_FAILURE:
        return _after_stored_failure(operation, now, limits)
    return _BY_POLICY[operation.present.policy](operation, now, limits)


def into_review(operation: Operation, review: Review) -> Change:
    """Return the change that a ``Review`` decision makes."""
    return Change(
        state=State.REVIEW,
        step=operation.step,
        external_id=operation.external_id,
        next_attempt_at=None,
        result=operation.result,
        last_error=operation.last_error,
        tries=operation.tries,
        looked_up_at=operation.looked_up_at,
        action_until=operation.action_until,
        review=(review.code, review.detail),
    )


def can_be_abandoned(operation: Operation) -> bool:
    """Whether a cancel that was asked for can happen now: nothing was sent, or the intent can be closed."""
    if operation.role is Role.CONFIRM:
        return True
    return operation.role is not Role.CANCEL and operation.state is State.REQUESTED and operation.never_sent


def _at_rest(operation: Operation) -> Decision:
    look = _look(operation) if operation.look_asked else None
    return look or Wait(None, f"it is {operation.state}")


def _abandoned(operation: Operation, now: datetime) -> Settle | None:
    if operation.cancel_asked and can_be_abandoned(operation):
        return Settle(Evidence(proof=Proof.ABANDONED, detail="its cancel was asked for"))
    if operation.action_until is not None and operation.action_until <= now and operation.role is Role.CONFIRM:
        return Settle(Evidence(proof=Proof.ABANDONED, detail="the customer did not act in time"))
    return None


def _look(operation: Operation) -> LookUp | None:
    how = how_to_look(operation.present, operation.external_id)
    return None if how is None else LookUp(operation.present, how)


def _unproved(detail: str) -> Review:
    return Review("operation_unproved", detail)


def _windowed(operation: Operation, now: datetime, limits: Limits) -> Decision:
    """The same key within the window; after it only what was never sent, and only after a look."""
    if now < operation.window_from + limits.safe_window:
        return Send(operation.present, in_window=True)
    look = _look(operation)
    if operation.never_sent:
        return Send(operation.present, in_window=False) if look is None or _fresh(operation, now, limits) else look
    if look is None:
        return _unproved("it may have been sent, the safe window is over, and nothing can be looked up")
    return _waited(operation, now, limits) or Review(
        "operation_not_found",
        "it may have been sent, the safe window is over, and a complete look-up has nothing of it",
    )


def _harmless(operation: Operation, now: datetime, limits: Limits) -> Decision:
    """A repeat costs nothing; after the window a look first, so that there is seldom a surplus."""
    if now < operation.window_from + limits.safe_window:
        return Send(operation.present, in_window=True)
    return _send_after_look(operation, now, limits)


def _fenced(operation: Operation, now: datetime, limits: Limits) -> Decision:
    """The object itself keeps it from happening twice: what may have been sent is settled by looking at it."""
    if operation.never_sent and now < operation.window_from + limits.safe_window:
        return Send(operation.present, in_window=True)
    return _send_after_look(operation, now, limits)


def _at_most_once(operation: Operation, now: datetime, limits: Limits) -> Decision:
    if operation.never_sent:
        return _windowed(operation, now, limits)
    if _look(operation) is None:
        return _unproved("it may have been sent, and it may be sent only once")
    return _waited(operation, now, limits) or Review(
        "operation_not_found", "it may have been sent, it may be sent only once, and nothing of it is found"
    )


def _reconcile_first(operation: Operation, now: datetime, limits: Limits) -> Decision:
    """Every send follows a look; a second one only within the window and after the wait."""
    if operation.never_sent:
        return _send_after_look(operation, now, limits)
    if waits := _waited(operation, now, limits):
        return waits
    if now < operation.window_from + limits.safe_window:
        return _send_after_look(operation, now, limits)
    return _windowed(operation, now, limits)


_BY_POLICY: Mapping[Policy, Callable[[Operation, datetime, Limits], Decision]] = {
    Policy.STRIPE: _windowed,
    Policy.IDEMPOTENT: _windowed,
    Policy.AT_LEAST_ONCE: _windowed,
    Policy.HARMLESS: _harmless,
    Policy.FENCED: _fenced,
    Policy.AT_MOST_ONCE: _at_most_once,
    Policy.RECONCILE_FIRST: _reconcile_first,
}


def _send_after_look(operation: Operation, now: datetime, limits: Limits) -> Decision:
    if _fresh(operation, now, limits):
        return Send(operation.present, in_window=False)
    return _look(operation) or _unproved("it is sent only after a look-up, and nothing can be looked up")


def _after_refusal(operation: Operation, now: datetime, limits: Limits) -> Decision:
    """Refused now, yet an earlier try may have acted: the refusal counts once nothing of it is there."""
    look = _look(operation)
    if look is None:
        return Review("refusal_unproved", f"an earlier try may have acted; now: {operation.last_error}")
    fenced = operation.present.policy in (Policy.FENCED, Policy.HARMLESS)
    waits = (None if _looked_since_sent(operation) else look) if fenced else _waited(operation, now, limits)
    return waits or _refused(operation)


def _after_stored_failure(operation: Operation, now: datetime, limits: Limits) -> Decision:
    """The key answers with a failure for ever: it is not sent again, and only a look tells what came of it.

    An intent costs nothing before its confirm, and can be closed after it: that is certain.  Anything else may still come.
    """
    if _look(operation) is None:
        return _unproved("it may have been done, its key answers with a failure for ever, and nothing can be looked up")
    if waits := _waited(operation, now, limits):
        return waits
    if operation.role is not Role.CALL:
        return _refused(operation)
    return Review(
        "operation_not_found",
        "it may have been done, its key answers with a failure for ever, and a complete look-up has nothing of it",
    )


def _after_key_mismatch(operation: Operation, now: datetime, limits: Limits) -> Decision:
    """An earlier request of this key ran, and said something else: it is not sent again, and what that request made is looked for.

    An older release may have frozen the same call in other words, before a restore has forgotten it: its object has our id.
    """
    if _look(operation) is None:
        return Review("key_mismatch", "its key was used with other parameters, and nothing can be looked up")
    return _waited(operation, now, limits) or Review(
        "key_mismatch", "its key was used with other parameters, and a complete look-up has nothing of it"
    )


def _refused(operation: Operation) -> Settle:
    return Settle(Evidence(proof=Proof.REFUSED, from_lookup=True, detail=operation.last_error or "refused"))


def _fresh(operation: Operation, now: datetime, limits: Limits) -> bool:
    """Whether a look-up after the last send has just found nothing."""
    looked = operation.looked_up_at
    return looked is not None and looked >= now - limits.lookup_fresh and _looked_since_sent(operation)


def _looked_since_sent(operation: Operation) -> bool:
    looked, sent = operation.looked_up_at, operation.last_sent_at
    return looked is not None and (sent is None or looked >= sent)


def _waited(operation: Operation, now: datetime, limits: Limits) -> LookUp | Wait | Review | None:
    """None once a complete read, long enough after the last possible send, has found nothing."""
    counts_from = (operation.last_sent_at or operation.requested_at) + limits.absence_wait
    if operation.looked_up_at is not None and operation.looked_up_at >= counts_from:
        return None
    if _looked_since_sent(operation) and now < counts_from:
        return Wait(counts_from, "nothing of it is found yet, and a request may still be on its way")
    return _look(operation) or _unproved("it may have been sent, and nothing can be looked up")
