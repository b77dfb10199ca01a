"""The one table of operations: what a proof does to an operation.

Rule: whatever can arrive has a row here, in any order; an unknown operation leaves only by evidence; a charge is failed only
when its intent is closed for certain; what is settled stays, except for what Stripe itself takes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from onceflow_schemas.operations.evidence import Evidence, Proof
from onceflow_schemas.operations.limits import LIMITS, Limits
from onceflow_schemas.operations.moves import MOVES, Case, Change, Move
from onceflow_schemas.operations.operation import SETTLED, Operation, Policy, Role, State
from onceflow_schemas.operations.resources import shows_effect

P, M = Proof, Move

ANSWERS: dict[Proof, Move] = {
    P.DONE: M.FINISH,
    P.PROCESSING: M.WAIT,
    P.NEEDS_ACTION: M.WAIT,
    P.OPEN: M.REVIEW,
    P.DECLINED: M.FAIL,
    P.REFUSED: M.REFUSAL,
    P.ENDED: M.FAIL,
    P.NOT_SENT: M.BACK,
    P.LIMITED: M.BACK,
    P.UNAUTHORISED: M.BACK,
    P.BUSY: M.DOUBT,
    P.KEY_MISMATCH: M.DOUBT,
    P.UNKNOWN: M.DOUBT,
    P.STORED_FAILURE: M.DOUBT,
    P.STRANGE: M.REVIEW,
    P.LEASE_EXPIRED: M.DOUBT,
}
"""State SENDING, what the send was answered; the roles below differ in some rows."""

READS: dict[Proof, Move] = {
    P.DONE: M.FINISH,
    P.PROCESSING: M.WAIT,
    P.NEEDS_ACTION: M.WAIT,
    P.OPEN: M.NOTHING_YET,
    P.DECLINED: M.FAIL,
    P.REFUSED: M.FAIL,
    P.ENDED: M.FAIL,
    P.NOT_SENT: M.STAY,
    P.LIMITED: M.STAY,
    P.UNAUTHORISED: M.STAY,
    P.BUSY: M.STAY,
    P.UNKNOWN: M.STAY,
    P.STORED_FAILURE: M.STAY,
    P.STRANGE: M.REVIEW,
    P.ABSENT: M.NOTHING_YET,
    P.SEVERAL: M.REVIEW,
    P.LOOKUP_FAILED: M.STAY,
    P.LEASE_EXPIRED: M.STAY,
}
"""States REQUESTED, UNKNOWN, PENDING, what was read.  ``REFUSED`` is a conclusion: refused, and nothing of it is there."""

_OF_ROLE: Mapping[Role, tuple[dict[Proof, Move], dict[Proof, Move]]] = {
    Role.CALL: ({}, {}),
    Role.CREATE: (
        {P.PROCESSING: M.REVIEW, P.NEEDS_ACTION: M.REVIEW, P.DECLINED: M.REVIEW},
        {P.PROCESSING: M.REVIEW, P.NEEDS_ACTION: M.REVIEW, P.DECLINED: M.REVIEW, P.OPEN: M.REVIEW},
    ),
    Role.CONFIRM: (
        {P.NEEDS_ACTION: M.AWAIT_ACTION, P.DECLINED: M.CLOSE, P.REFUSED: M.DOUBT, P.KEY_MISMATCH: M.REVIEW},
        {P.NEEDS_ACTION: M.AWAIT_ACTION, P.DECLINED: M.CLOSE, P.REFUSED: M.CLOSE, P.ABSENT: M.REVIEW},
    ),
    Role.CANCEL: (
        {P.NEEDS_ACTION: M.REVIEW, P.DECLINED: M.REVIEW, P.REFUSED: M.DOUBT, P.KEY_MISMATCH: M.REVIEW},
        {P.NEEDS_ACTION: M.NOTHING_YET, P.DECLINED: M.NOTHING_YET, P.REFUSED: M.REVIEW, P.ABSENT: M.REVIEW},
    ),
}
"""Role -> (answers, reads) that differ from the above."""

_WAS_THERE: Mapping[tuple[Role, Proof], Move] = {
    (Role.CALL, P.OPEN): M.REVIEW,
    (Role.CALL, P.ABSENT): M.REVIEW,
    (Role.CONFIRM, P.OPEN): M.CLOSE,
}
"""Reads in PENDING: it was there before, so that its absence is no good news; a confirm that came to nothing is over."""

_SETTLES: Mapping[Role, frozenset[Move]] = {
    Role.CALL: frozenset({M.FINISH, M.WAIT, M.FAIL}),
    Role.CREATE: frozenset({M.FAIL}),
    Role.CONFIRM: frozenset({M.FINISH, M.WAIT, M.AWAIT_ACTION, M.FAIL, M.CLOSE}),
    Role.CANCEL: frozenset({M.FINISH, M.WAIT, M.FAIL}),
}
"""Reads in REVIEW that still settle it, when the review is about missing evidence: nothing that charges goes on by itself."""

EVIDENCE_WANTED = frozenset(
    {"operation_unproved", "operation_not_found", "refusal_unproved", "key_mismatch", "cancel_refused"}
)

_NOT_FOUND = 404

_NOT_CHARGED = frozenset({P.OPEN, P.NEEDS_ACTION, P.DECLINED})


def advance(operation: Operation, evidence: Evidence, *, now: datetime, limits: Limits = LIMITS) -> Change:
    """Return what an operation becomes by a proof.

    Args:
        operation: as it is; in SENDING ``sent`` does not count the attempt in hand.
        evidence: what was proved.
        now: database clock.
        limits: pauses and waits.

    Raises:
        AssertionError: a pair that only a bug can make, such as an answer to a step that is not being sent.
    """
    case = Case(operation, evidence, now, limits)
    move = _stray(operation, evidence) or _move(operation, evidence)
    return MOVES[move](case)


def _move(operation: Operation, evidence: Evidence) -> Move:
    if evidence.proof in _RULINGS:
        assert operation.state in (State.REVIEW, State.UNKNOWN), (operation.state, evidence.proof)
        return M.RULE
    if operation.state in SETTLED:
        return _move_settled(operation, evidence)
    if operation.state is State.SENDING:
        assert not evidence.from_lookup, evidence.proof
        assert evidence.proof in ANSWERS, evidence.proof
        return _answered(operation, evidence)
    if evidence.proof is P.STRANGE and operation.state is State.REQUESTED and _names_nothing(operation, evidence):
        return M.FAIL
    return _read(operation, evidence.proof)


_RULINGS = frozenset({P.RULED_SUCCEEDED, P.RULED_FAILED})


def _answered(operation: Operation, evidence: Evidence) -> Move:
    move = (ANSWERS | _OF_ROLE[operation.role][0])[evidence.proof]
    if move is not M.REFUSAL:
        return move
    return M.FAIL if _refusal_is_final(operation, evidence) else M.DOUBT


def _refusal_is_final(operation: Operation, evidence: Evidence) -> bool:
    """A refusal speaks for the operation when it is the first try's, or the stored answer of the key.

    A step that its object fences is refused also because it has happened already, so that one is looked up; unless what it
    names is not there: of that nothing has happened, and the look would find no object to judge.
    """
    if operation.present.policy is Policy.FENCED:
        return _names_nothing(operation, evidence)
    return operation.never_sent or evidence.replayed


def _names_nothing(operation: Operation, evidence: Evidence) -> bool:
    """Whether a call that was never sent is about an object that its account does not have."""
    step = operation.present
    fenced = operation.role is Role.CALL and step.policy is Policy.FENCED
    return fenced and operation.never_sent and evidence.http_status == _NOT_FOUND


def _read(operation: Operation, proof: Proof) -> Move:
    role = operation.role
    if proof is P.ABANDONED:
        return _move_abandoned(operation)
    reads = READS | _OF_ROLE[role][1]
    if operation.state is State.REVIEW:
        move = reads.get(proof, M.KEEP)
        return move if operation.review_code in EVIDENCE_WANTED and move in _SETTLES[role] else M.KEEP
    if operation.state is State.PENDING and (role, proof) in _WAS_THERE:
        return _WAS_THERE[role, proof]
    assert proof in reads, (operation.state, proof)
    return reads[proof]


def _move_abandoned(operation: Operation) -> Move:
    if operation.role in (Role.CALL, Role.CREATE):
        assert operation.state is State.REQUESTED, operation.state
        assert operation.never_sent, operation.role
        return M.WITHDRAW
    under_way = operation.role is Role.CANCEL and operation.state is not State.REVIEW
    return M.STAY if under_way else M.CLOSE


def _move_settled(operation: Operation, evidence: Evidence) -> Move:
    """What is settled stays, except: more than one object, a refund returned by its bank, an effect that was said not to be."""
    proof = evidence.proof
    if proof is P.SEVERAL:
        return M.REVIEW
    if operation.state is State.SUCCEEDED:
        return M.FAIL if proof is P.ENDED and operation.role is Role.CALL else M.KEEP
    if operation.role is Role.CREATE:
        return M.SURPLUS if proof is P.DONE else M.KEEP
    return M.OTHERWISE if proof in (P.DONE, P.PROCESSING) and _shows_effect(evidence) else M.KEEP


def _shows_effect(evidence: Evidence) -> bool:
    """An object may be there without anything having come of it: that contradicts no failure, and is no second effect."""
    return shows_effect((evidence.object or {}).get("object"), evidence.status)


def _stray(operation: Operation, evidence: Evidence) -> Move | None:
    """A read of another object than the stored one: a surplus intent is cancelled, a second effect is for a person."""
    other = None not in (operation.external_id, evidence.external_id) and operation.external_id != evidence.external_id
    if not other or not evidence.from_lookup or operation.role is Role.CREATE:
        return None
    if evidence.proof is P.STRANGE:
        return M.REVIEW
    if operation.role is not Role.CALL and evidence.proof in _NOT_CHARGED:
        return M.SURPLUS
    is_effect = evidence.proof in (P.DONE, P.PROCESSING, P.NEEDS_ACTION) and _shows_effect(evidence)
    return M.SECOND if is_effect else M.KEEP
