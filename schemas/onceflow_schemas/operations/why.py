"""In plain words: how an operation stands, why nothing is sent just now, and what happens next.

Rule: the words come from the decision that a worker would take; there is no second logic here.
"""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from onceflow_schemas.failure import FAILURES
from onceflow_schemas.operations.decide import Decision, LookUp, Review, Send, Settle, Wait, decide
from onceflow_schemas.operations.evidence import Proof, evidence_from
from onceflow_schemas.operations.limits import LIMITS, Limits
from onceflow_schemas.operations.operation import SETTLED, Operation, Policy, Role, State
from onceflow_schemas.operations.rulings import DECIDED

_BECAME: dict[Proof, str] = {
    Proof.DONE: "is done",
    Proof.DECLINED: "was declined",
    Proof.REFUSED: "was refused",
    Proof.ENDED: "has come to nothing",
}


def why(
    operation: Operation, *, now: datetime, next_attempt_at: datetime | None = None, limits: Limits = LIMITS
) -> str:
    """Return two or three sentences for a person.

    Args:
        operation: as read.
        now: database clock.
        next_attempt_at: when a worker looks at it next; None when that is not known or never.
        limits: as the workers have them.
    """
    if operation.conclusion is not None:
        due = next_attempt_at if next_attempt_at is not None and next_attempt_at > now else None
        return _concluded(operation, evidence_from(operation.conclusion).proof, due=due)
    sentences = [_stands(operation), _next(operation, decide(operation, now=now, limits=limits), limits)]
    if next_attempt_at is not None and next_attempt_at > now and operation.state not in SETTLED | {State.REVIEW}:
        sentences.append(f"A worker looks at it at {_time(next_attempt_at)}.")
    return " ".join(sentence for sentence in sentences if sentence)


def _concluded(operation: Operation, proof: Proof, *, due: datetime | None) -> str:
    """What is known and not settled yet: how it stands was said before that was known, and is not said again."""
    if proof in DECIDED:
        before = "It was put before a person." if operation.state is State.REVIEW else _stands(operation)
        known = f"A person has decided ({proof}): a worker that knows the effect settles it next."
        known = known if operation.tries else f"{before} {known}"
    else:
        of_charge = proof is Proof.DONE and operation.role in (Role.CONFIRM, Role.CANCEL)
        name = "the charge" if of_charge else _name(operation)
        became = _BECAME.get(proof, f"is known ({proof})")
        known = f"{name[0].upper()}{name[1:]} {became}, and nothing of it is sent any more."
    if not operation.tries:
        return known
    told = (operation.last_error or "").partition(":")[0] in FAILURES
    fails = "Its settled callback has failed" if told else "Writing that down has failed"
    times = "once" if operation.tries == 1 else f"{operation.tries} times"
    again = "by the next worker" if due is None else f"at {_time(due)}"
    return (
        f"{known} {fails} {times}, last with: {_reason(operation)}. It is tried again {again};"
        " `onceflow operations retry` has it tried at once."
    )


def _stands(operation: Operation) -> str:
    name = _name(operation)
    match operation.state:
        case State.REQUESTED:
            tried = f" ({operation.last_error})" if operation.last_error else ""
            return f"Nothing of {name} is known to have been sent{tried}."
        case State.SENDING:
            return f"A worker has committed an attempt of {name} and may be sending it now."
        case State.PENDING:
            return _pending(operation)
        case State.UNKNOWN:
            return f"{name[0].upper()}{name[1:]} may have happened ({_reason(operation)})."
        case State.REVIEW:
            return _reviewed(operation)
        case State.SUCCEEDED:
            return "It has succeeded."
        case State.FAILED:
            return f"It has failed ({_reason(operation)})."
        case State.CANCELED:
            return "It was canceled, and nothing of it will happen."
    assert_never(operation.state)


def _pending(operation: Operation) -> str:
    if operation.role is Role.CANCEL:
        reason = (operation.result or {}).get("reason") or _reason(operation)
        return f"{operation.external_id} is to be canceled ({reason}); it counts as failed only when that is certain."
    if operation.action_until is not None:
        return f"The customer must act until {_time(operation.action_until)}."
    return "The other side has it and has not decided yet."


def _reviewed(operation: Operation) -> str:
    kind = FAILURES.get(operation.review_code or "")
    if kind is None:
        return "Only a person may decide."
    return f"Only a person may decide ({kind.code}): {kind.meaning} {kind.hint}"


def _next(operation: Operation, decision: Decision, limits: Limits) -> str:
    match decision:
        case Send():
            return f"Next {_name(operation)} is sent{_safe_because(operation, decision, limits)}."
        case LookUp():
            where = decision.how.get("retrieve") or decision.how.get("list") or decision.how.get("url")
            return f"Next it is looked up ({where}); nothing is sent before that."
        case Wait():
            return "" if decision.until is None else f"Nothing happens before {_time(decision.until)}: {decision.why}."
        case Settle():
            return _settles(decision)
        case Review():
            return f"Next it is put before a person ({decision.code}): {decision.detail}."
    assert_never(decision)


def _safe_because(operation: Operation, decision: Send, limits: Limits) -> str:
    if decision.in_window and operation.sent:
        return f" again with the same key, which is safe until {_time(operation.window_from + limits.safe_window)}"
    if decision.in_window or operation.looked_up_at is None:
        return ""
    if operation.present.policy is Policy.FENCED:
        return f": it has not happened yet at {_time(operation.looked_up_at)}, and it cannot happen twice"
    return f": a complete look-up at {_time(operation.looked_up_at)} has nothing of it"


def _settles(decision: Settle) -> str:
    proof = decision.evidence.proof
    if proof is Proof.LEASE_EXPIRED:
        return "If its lease ends without an answer, it counts as unknown."
    if proof is Proof.ABANDONED:
        return f"Next it is canceled: {decision.evidence.detail}."
    return "Next it is settled: it was refused, and nothing of it is there."


def _name(operation: Operation) -> str:
    return "the call" if operation.role is Role.CALL else f"the {operation.role} of the charge"


def _reason(operation: Operation) -> str:
    return operation.last_error or "no reason is noted"


def _time(when: datetime) -> str:
    return when.strftime("%Y-%m-%d %H:%M:%S UTC")
