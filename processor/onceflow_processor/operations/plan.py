"""What a worker does with what it has leased: the call to make, what its row says meanwhile, or why it is let go.

Rule: values in, values out.  ``decide`` says what; here it becomes a job and a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from onceflow_processor.operations.job import SURPLUS_STEP, Job, Purpose
from onceflow_processor.operations.rows import Claimed, Write
from onceflow_schemas.operations.advance import advance
from onceflow_schemas.operations.decide import LookUp, Review, Send, Settle, Wait, decide, into_review
from onceflow_schemas.operations.evidence import Evidence, Proof
from onceflow_schemas.operations.freeze import closing_step
from onceflow_schemas.operations.limits import Limits
from onceflow_schemas.operations.lookup import how_to_look
from onceflow_schemas.operations.moves import Change
from onceflow_schemas.operations.operation import Operation, State

DECISIONS_MAX = 4
"""Decisions that need no call, one after the other: a dead worker's attempt, an abandoned intent, and what follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What is to be done about one leased operation.

    Attributes:
        released: its row when nothing is done, or not now: the lease is given up.
        job: the call to make; None when there is none.
        row: its row while the call is on its way.
        evidence: what it is settled by without a call.
        review: (code, detail) of a review that opens.
    """

    released: Write
    job: Job | None = None
    row: Write | None = None
    evidence: Evidence | None = None
    review: tuple[str, str] | None = None


def plan(claimed: Claimed, *, limits: Limits) -> Planned:
    """Return what to do about a leased operation that is due."""
    for _ in range(DECISIONS_MAX):
        operation, now = claimed.operation, claimed.read_at
        match decide(operation, now=now, limits=limits):
            case Settle(evidence):
                change = advance(operation, evidence, now=now, limits=limits)
                if change.tells or change.review is not None:
                    return _settled(claimed, evidence)
                claimed = _advanced(claimed, change, evidence)
            case Send(step, in_window):
                until = operation.window_from + limits.safe_window if in_window else None
                attempt = claimed.attempts + 1
                sending = replace(claimed, operation=replace(operation, state=State.SENDING))
                job = Job(purpose=Purpose.SEND, claimed=sending, step=step, attempt=attempt, send_before=until)
                return _call(claimed, job)
            case LookUp(step, how):
                # A webhook may have named another object than the stored one; what that proves, the table knows.
                named = how_to_look(step, claimed.look_at) if claimed.look_at is not None else None
                job = Job(
                    purpose=Purpose.LOOK_UP, claimed=claimed, step=step, how=named or how, object_id=claimed.look_at
                )
                return _call(claimed, job)
            case Wait(until):
                return _close_surplus(claimed) or Planned(released=Write.of(claimed, next_attempt_at=until))
            case Review() as review:
                change = into_review(operation, review)
                return Planned(released=Write.of(_advanced(claimed, change, None)), review=change.review)
    raise AssertionError(f"no end of decisions about an operation in state {claimed.operation.state}")


def changed(operation: Operation, change: Change) -> Operation:
    """Return the operation with the values of a change."""
    return replace(
        operation,
        state=change.state,
        step=change.step,
        external_id=change.external_id,
        result=change.result,
        last_error=change.last_error,
        tries=change.tries,
        looked_up_at=change.looked_up_at,
        action_until=change.action_until,
        conclusion=None,
        told=(*operation.told, change.state.value) if change.tells else operation.told,
    )


def within(planned: Iterable[Planned], granted: Mapping[str, int]) -> tuple[list[Planned], list[Planned]]:
    """Split what is planned into what the accounts' budgets allow, in its order, and what must wait.

    Args:
        planned: calls, and what needs none.
        granted: calls that each account may make now.
    """
    left = dict(granted)
    allowed: list[Planned] = []
    waiting: list[Planned] = []
    for one in planned:
        if one.job is None or not costs(one.job):
            allowed.append(one)
        elif left.get(one.job.operation.account, 0) > 0:
            left[one.job.operation.account] -= 1
            allowed.append(one)
        else:
            waiting.append(one)
    return allowed, waiting


def costs(job: Job) -> bool:
    """Say whether a job takes a call of its account's budget."""
    return job.purpose is not Purpose.SETTLE and job.step.kind == "stripe"


def _call(before: Claimed, job: Job) -> Planned:
    row = Write.of(job.claimed, keep_lease=True)
    return Planned(released=Write.of(before, next_attempt_at=before.read_at), job=job, row=row)


def _settled(claimed: Claimed, evidence: Evidence) -> Planned:
    job = Job(purpose=Purpose.SETTLE, claimed=claimed, step=claimed.operation.present)
    return Planned(
        released=Write.of(claimed, next_attempt_at=claimed.read_at),
        job=job,
        row=Write.of(claimed, keep_lease=True),
        evidence=evidence,
    )


def _close_surplus(claimed: Claimed) -> Planned | None:
    """Cancel an intent too many, when there is nothing more urgent about its operation."""
    if not claimed.surplus:
        return None
    object_id = claimed.surplus[0]
    job = Job(
        purpose=Purpose.CLOSE,
        claimed=claimed,
        step=closing_step(claimed.operation, object_id),
        attempt=claimed.attempts + 1,
        object_id=object_id,
    )
    return _call(claimed, job)


def step_index(job: Job) -> int:
    """Return what stands in ``attempt.step``."""
    return SURPLUS_STEP if job.purpose is Purpose.CLOSE else job.operation.step


def _advanced(claimed: Claimed, change: Change, evidence: Evidence | None) -> Claimed:
    operation = changed(claimed.operation, change)
    if change.step != claimed.operation.step:
        operation = replace(operation, sent=False, last_sent_at=None, last_proof=None)
    elif evidence is not None and evidence.proof is Proof.LEASE_EXPIRED:
        operation = replace(operation, sent=True, last_sent_at=claimed.in_hand_at, last_proof=None)
    return replace(claimed, operation=operation, surplus=tuple(sorted({*claimed.surplus, *change.surplus})))
