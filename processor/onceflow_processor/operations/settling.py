"""What an operation's row says after a job, and what else follows from its evidence.

Rule: values in, values out.  ``advance`` says what an operation becomes; here its row, its attempt and the reasons to look
again are put together.  What was asked for while the call was on its way is not forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from onceflow_processor.operations.job import Job, Purpose
from onceflow_processor.operations.plan import changed
from onceflow_processor.operations.rows import Claimed, Write
from onceflow_processor.operations.undecided import put_aside
from onceflow_schemas.operations.advance import advance
from onceflow_schemas.operations.evidence import Evidence, Proof, evidence_json
from onceflow_schemas.operations.limits import Limits
from onceflow_schemas.operations.moves import Change
from onceflow_schemas.operations.operation import SETTLED, State

LOOK_AGAIN = timedelta(minutes=1)
"""After a look at a settled operation, or the cancel of a surplus intent, that gave no answer."""

CALLBACK_FIRST = timedelta(seconds=1)
CALLBACK_MOST = timedelta(minutes=5)
"""Pause after a settled callback that failed, doubling."""

_NOTHING_LEARNT = frozenset(
    {Proof.LOOKUP_FAILED, Proof.LIMITED, Proof.UNAUTHORISED, Proof.NOT_SENT, Proof.BUSY, Proof.UNKNOWN}
)
_CHARGED = frozenset({Proof.DONE, Proof.PROCESSING})
_DOUBLINGS_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """What the row said when it was locked for the settlement: others may ask for something at any time."""

    cancel_asked: bool
    look_asked: bool
    look_at: str | None
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """The end of one job.

    Attributes:
        job, evidence: what has come back.
        former: the state before it.
        row: what is written.
        tells: the settled callback runs.
        review: (code, detail) of a review that opens.
        leaves_review: an open review is closed by the evidence.
        seconds: how long the call took; None without one.
    """

    job: Job
    evidence: Evidence
    former: State
    row: Write
    tells: bool = False
    review: tuple[str, str] | None = None
    leaves_review: bool = False
    seconds: float | None = None


def settle(job: Job, evidence: Evidence, *, fresh: Fresh, limits: Limits) -> Settlement:
    """Return what follows from a job's evidence; what no rule can be applied to is put before a person, with the evidence."""
    try:
        return _settle(job, evidence, fresh=fresh, limits=limits)
    except Exception as error:  # noqa: BLE001 - one operation must not stop the others, whatever its row or answer holds.
        aside = put_aside(job.claimed, error)
        former = job.operation.state
        return Settlement(job=job, evidence=evidence, former=former, row=aside.released, review=aside.review)


def _settle(job: Job, evidence: Evidence, *, fresh: Fresh, limits: Limits) -> Settlement:
    # Of a conclusion the last error is its callback's, and says nothing about how the operation ends.
    last_error = job.operation.last_error if job.operation.conclusion is None else None
    operation = replace(job.operation, cancel_asked=fresh.cancel_asked, last_error=last_error)
    before = replace(job.claimed, operation=operation)
    former = before.operation.state
    if job.purpose is Purpose.CLOSE:
        assert job.object_id is not None
        if evidence.proof not in _CHARGED:
            return _closed(job, evidence, before, fresh)
        # It was to be cancelled and has charged: a second effect, which the table knows by the other object's id.
        evidence = replace(evidence, from_lookup=True, external_id=job.object_id)
        before = replace(before, surplus=_without(before.surplus, job.object_id))
    change = advance(before.operation, evidence, now=fresh.now, limits=limits)
    after = replace(
        before,
        operation=changed(before.operation, change),
        surplus=tuple(sorted({*before.surplus, *change.surplus})),
    )
    answered = _answered(job, evidence, fresh, change)
    row = _row(job, after, fresh, next_attempt_at=change.next_attempt_at, answered=answered)
    was_review, is_review = former is State.REVIEW, change.state is State.REVIEW
    return Settlement(
        job=job,
        evidence=evidence,
        former=former,
        row=row,
        tells=change.tells,
        review=change.review,
        leaves_review=was_review and not is_review,
    )


def concluded(settlement: Settlement, *, reason: str, fresh: Fresh, limits: Limits) -> Write:
    """Return the row when the settled callback failed: what was proved is kept, and it is settled later without a call."""
    operation = settlement.job.operation
    if operation.state is State.SENDING:
        # The lease is given up, and the row must not say that a call is on its way.
        doubt = Evidence(proof=Proof.UNKNOWN, detail=settlement.evidence.detail)
        operation = changed(operation, advance(operation, doubt, now=fresh.now, limits=limits))
    # From here on they count the settlements that failed.
    tries = 1 if settlement.job.operation.conclusion is None else settlement.job.operation.tries + 1
    wait = min(CALLBACK_MOST, CALLBACK_FIRST * 2 ** min(tries - 1, _DOUBLINGS_MAX))
    kept = replace(operation, conclusion=evidence_json(settlement.evidence), tries=tries, last_error=reason)
    claimed = replace(settlement.job.claimed, operation=kept)
    return Write.of(claimed, next_attempt_at=fresh.now + wait)


def unmade(why: str, *, looks: bool) -> Evidence:
    """Return the evidence of a call that was never begun; ``looks`` for a look-up."""
    if looks:
        return Evidence(proof=Proof.LOOKUP_FAILED, from_lookup=True, detail=why)
    return Evidence(proof=Proof.NOT_SENT, detail=why)


def _closed(job: Job, evidence: Evidence, before: Claimed, fresh: Fresh) -> Settlement:
    """Return what follows from the cancel of a surplus intent: it is canceled, or tried again later."""
    former, ended = before.operation.state, evidence.proof is Proof.ENDED
    left = _without(before.surplus, job.object_id) if ended else before.surplus
    at_rest = former in SETTLED or former is State.REVIEW
    due = None if at_rest and not left else fresh.now + (timedelta() if ended else LOOK_AGAIN)
    row = _row(job, replace(before, surplus=left), fresh, next_attempt_at=due, answered=False)
    return Settlement(job=job, evidence=evidence, former=former, row=row)


def _without(surplus: tuple[str, ...], object_id: str | None) -> tuple[str, ...]:
    return tuple(one for one in surplus if one != object_id)


def _answered(job: Job, evidence: Evidence, fresh: Fresh, change: Change) -> bool:
    """Say whether the reason to look at an object is met by this evidence."""
    if evidence.proof in _NOTHING_LEARNT:
        return False
    if fresh.look_at is None:
        return job.purpose is Purpose.LOOK_UP or change.state in SETTLED
    return fresh.look_at in (job.object_id, evidence.external_id)


def _row(job: Job, after: Claimed, fresh: Fresh, *, next_attempt_at: datetime | None, answered: bool) -> Write:
    """Return the row, due again when there is still a reason to look, or an intent to cancel."""
    look_asked = fresh.look_asked and not answered
    kept = replace(
        after,
        operation=replace(after.operation, look_asked=look_asked),
        look_at=fresh.look_at if look_asked else None,
    )
    if next_attempt_at is None and (look_asked or after.surplus):
        unanswered = job.purpose is not Purpose.SEND and look_asked and job.object_id == fresh.look_at
        next_attempt_at = fresh.now + (LOOK_AGAIN if unanswered else timedelta())
    return Write.of(kept, next_attempt_at=next_attempt_at)
