"""What the rows of the table in ``advance`` do: each move turns an operation and a proof into its next values.

Rule: a move is total and small; which one applies is said in the table and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from onceflow_schemas.operations.evidence import Evidence, Proof
from onceflow_schemas.operations.limits import Limits, pause
from onceflow_schemas.operations.operation import SETTLED, Operation, Role, State

PAUSE_ASKED_MAX = timedelta(hours=1)
"""The longest pause that the other side's Retry-After is obeyed for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The new values of an operation, all of them; they are written under the fence.

    Attributes:
        next_attempt_at: None when nothing is to be done any more.
        review: (code, detail) of a review that opens now.
        tells: the settled callback runs in this transaction, and its state is added to ``told``.
        surplus: ids of unconfirmed intents that are to be cancelled (``freeze.closing_step``); kept until they are.
    """

    state: State
    step: int
    external_id: str | None
    next_attempt_at: datetime | None
    result: Mapping[str, Any] | None
    last_error: str | None
    tries: int
    looked_up_at: datetime | None
    action_until: datetime | None
    review: tuple[str, str] | None = None
    tells: bool = False
    surplus: tuple[str, ...] = ()


class Move(StrEnum):
    """What happens to an operation."""

    FINISH = "finish"
    """The step is done: the next one begins, or the operation has succeeded."""
    WAIT = "wait"
    """The other side decides."""
    AWAIT_ACTION = "await_action"
    """The customer must act, until a deadline."""
    CLOSE = "close"
    """Nothing will come of the intent: it is cancelled, and the operation fails only when that is certain."""
    FAIL = "fail"
    WITHDRAW = "withdraw"
    """Canceled before anything was sent."""
    REFUSAL = "refusal"
    """FAIL for a first try or a stored answer; DOUBT otherwise."""
    BACK = "back"
    """This attempt executed nothing: as before it, later."""
    DOUBT = "doubt"
    """It may have happened."""
    NOTHING_YET = "nothing_yet"
    """A complete read shows nothing of the step."""
    STAY = "stay"
    """Nothing is learnt: later."""
    KEEP = "keep"
    """Nothing changes."""
    REVIEW = "review"
    SECOND = "second"
    """Another object of the operation has an effect: for a person."""
    OTHERWISE = "otherwise"
    """Settled without an effect that is there now: for a person."""
    SURPLUS = "surplus"
    """An unconfirmed intent too many: it is cancelled, the operation goes on."""
    RULE = "rule"
    """A person has decided."""


@dataclass(frozen=True, slots=True)
class Case:
    """What a move is decided from."""

    operation: Operation
    evidence: Evidence
    now: datetime
    limits: Limits


_REVIEW_CODES: Mapping[Proof, str] = {Proof.SEVERAL: "several_objects", Proof.KEY_MISMATCH: "key_mismatch"}
"""Proof -> code of the review it opens; any other is ``answer_strange``."""

_STILL_OPEN = frozenset({Proof.REFUSED, Proof.OPEN, Proof.NEEDS_ACTION, Proof.DECLINED})
"""What says in the cancel step that the intent could not be closed."""


def _keep(case: Case) -> Change:
    """Nothing changes; the next look stays out unless the operation is under way."""
    operation = case.operation
    under_way = operation.state not in SETTLED and operation.state is not State.REVIEW
    return Change(
        state=operation.state,
        step=operation.step,
        external_id=operation.external_id,
        next_attempt_at=_retry_at(case) if under_way else None,
        result=operation.result,
        last_error=operation.last_error,
        tries=operation.tries,
        looked_up_at=operation.looked_up_at,
        action_until=operation.action_until,
    )


def _with_evidence(case: Case) -> Change:
    """The operation with what the proof adds in any case: the object's id, an error's text, one more try."""
    evidence = case.evidence
    return replace(
        _keep(case),
        external_id=case.operation.external_id or evidence.external_id,
        last_error=_text(evidence) or case.operation.last_error,
        tries=case.operation.tries + 1,
        next_attempt_at=_retry_at(case),
    )


def _text(evidence: Evidence) -> str:
    return ": ".join(part for part in (evidence.code, evidence.detail) if part)


def _retry_at(case: Case) -> datetime:
    limits, operation = case.limits, case.operation
    wait = pause(limits.retry_first, limits.retry_most, tries=operation.tries + 1, operation_id=operation.id)
    asked = timedelta(seconds=case.evidence.retry_after_seconds or 0)
    return case.now + max(wait, min(asked, PAUSE_ASKED_MAX))


def _result(case: Case) -> Mapping[str, Any] | None:
    """What is kept of the object, with the code and the reason of what went wrong."""
    evidence = case.evidence
    found = evidence.object or case.operation.result
    return found if evidence.code is None else {**(found or {}), "code": evidence.code}


def _settled(case: Case, state: State) -> Change:
    return replace(
        _with_evidence(case),
        state=state,
        result=_result(case),
        next_attempt_at=None,
        tries=0,
        action_until=None,
        tells=state.value not in case.operation.told,
    )


def _finish(case: Case) -> Change:
    operation, evidence = case.operation, case.evidence
    if operation.role is not Role.CREATE:
        return replace(_settled(case, State.SUCCEEDED), last_error=None)
    kept = operation.external_id or evidence.external_id
    assert kept is not None
    return replace(
        _with_evidence(case),
        state=State.REQUESTED,
        step=operation.step + 1,
        tries=0,
        next_attempt_at=case.now,
        looked_up_at=None,
        last_error=None,
        surplus=_surplus_ids(evidence, kept),
    )


def _surplus_ids(evidence: Evidence, kept: str) -> tuple[str, ...]:
    named = {*evidence.surplus, *([evidence.external_id] if evidence.external_id else [])}
    return tuple(sorted(named - {kept}))


def _wait(case: Case) -> Change:
    operation, limits = case.operation, case.limits
    tries = operation.tries + 1 if operation.state is State.PENDING else 1
    wait = pause(limits.poll_first, limits.poll_most, tries=tries, operation_id=operation.id)
    return replace(
        _with_evidence(case),
        state=State.PENDING,
        tries=tries,
        next_attempt_at=case.now + wait,
        result=case.evidence.object or operation.result,
        looked_up_at=None,
        action_until=None,
    )


def _await_action(case: Case) -> Change:
    operation, limits = case.operation, case.limits
    params = operation.present.request["params"]
    wait = limits.action_wait_off_session if params.get("off_session") else limits.action_wait
    until = operation.action_until or case.now + wait
    waiting = _wait(case)
    assert waiting.next_attempt_at is not None
    return replace(waiting, action_until=until, next_attempt_at=min(waiting.next_attempt_at, until))


def _close(case: Case) -> Change:
    operation = case.operation
    return replace(
        _with_evidence(case),
        state=State.PENDING,
        step=len(operation.steps) - 1,
        tries=0,
        next_attempt_at=case.now,
        looked_up_at=None,
        action_until=None,
        result={**(_result(case) or {}), "reason": _text(case.evidence) or case.evidence.proof.value},
    )


def _fail(case: Case) -> Change:
    operation, evidence = case.operation, case.evidence
    asked = operation.cancel_asked and operation.role in (Role.CONFIRM, Role.CANCEL)
    failed = _settled(case, State.CANCELED if asked and evidence.proof is Proof.ENDED else State.FAILED)
    if operation.role is not Role.CANCEL:
        return failed
    # Why the intent was closed is why the charge has failed, not how its cancel went.
    before = {name: text for name, text in (operation.result or {}).items() if name in ("code", "reason")}
    return replace(failed, result={**(evidence.object or {}), **before}, last_error=before.get("reason"))


def _withdraw(case: Case) -> Change:
    return _settled(case, State.CANCELED)


def _back(case: Case) -> Change:
    operation = case.operation
    state = State.REQUESTED if operation.never_sent else State.UNKNOWN
    return replace(_with_evidence(case), state=State.PENDING if operation.role is Role.CANCEL else state)


def _doubt(case: Case) -> Change:
    state = State.PENDING if case.operation.role is Role.CANCEL else State.UNKNOWN
    return replace(_with_evidence(case), state=state, looked_up_at=None)


def _nothing_yet(case: Case) -> Change:
    """The last error stays: it says why it is not simply there."""
    kept = replace(_keep(case), external_id=case.operation.external_id or case.evidence.external_id)
    return replace(kept, looked_up_at=case.now, next_attempt_at=case.now)


def _stay(case: Case) -> Change:
    if case.operation.state is not State.PENDING or case.operation.role is Role.CANCEL:
        return _with_evidence(case)
    limits, tries = case.limits, case.operation.tries + 1
    wait = pause(limits.poll_first, limits.poll_most, tries=tries, operation_id=case.operation.id)
    return replace(_with_evidence(case), next_attempt_at=case.now + wait)


def _review(case: Case) -> Change:
    proof = case.evidence.proof
    if case.operation.role is Role.CANCEL and proof in _STILL_OPEN:
        return _into_review(case, "cancel_refused")
    return _into_review(case, _REVIEW_CODES.get(proof, "answer_strange"))


def _into_review(case: Case, code: str) -> Change:
    detail = _text(case.evidence) or case.operation.last_error or case.evidence.proof.value
    already = case.operation.state is State.REVIEW
    return replace(
        _with_evidence(case),
        state=State.REVIEW,
        next_attempt_at=None,
        review=None if already else (code, detail),
    )


def _second(case: Case) -> Change:
    other = f"{case.evidence.external_id} ({case.evidence.status or case.evidence.proof.value})"
    about = replace(case.evidence, detail=f"beside {case.operation.external_id} there is {other}", code=None)
    return _into_review(replace(case, evidence=about), "several_objects")


def _otherwise(case: Case) -> Change:
    state = case.operation.state
    about = replace(
        case.evidence,
        detail=f"it was {state} and {case.evidence.external_id} is {case.evidence.status or 'there'}",
        code=None,
    )
    return _into_review(replace(case, evidence=about), "settled_otherwise")


def _stray_surplus(case: Case) -> Change:
    return replace(_keep(case), surplus=(str(case.evidence.external_id),))


def _rule(case: Case) -> Change:
    done = case.evidence.proof is Proof.RULED_SUCCEEDED
    settled = _settled(case, State.SUCCEEDED if done else State.FAILED)
    return replace(settled, last_error=None if done else settled.last_error)


def _undecided(case: Case) -> Change:
    raise AssertionError(case.evidence.proof)


MOVES: Mapping[Move, Callable[[Case], Change]] = {
    Move.FINISH: _finish,
    Move.WAIT: _wait,
    Move.AWAIT_ACTION: _await_action,
    Move.CLOSE: _close,
    Move.FAIL: _fail,
    Move.WITHDRAW: _withdraw,
    Move.REFUSAL: _undecided,
    Move.BACK: _back,
    Move.DOUBT: _doubt,
    Move.NOTHING_YET: _nothing_yet,
    Move.STAY: _stay,
    Move.KEEP: _keep,
    Move.REVIEW: _review,
    Move.SECOND: _second,
    Move.OTHERWISE: _otherwise,
    Move.SURPLUS: _stray_surplus,
    Move.RULE: _rule,
}
