"""Decisions of a person about operations: checked, written with their row in audit, and carried out by a worker.

Rule: nothing is sent and no callback runs here.  What is decided about an operation whose outcome is open is kept as its
conclusion under a raised fence, so that whatever a worker may have in hand about it is dropped; a worker settles it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from psycopg import Connection
from psycopg.rows import dict_row

from onceflow_processor.operations.overview import Read, read_operation
from onceflow_schemas.failure import Refused
from onceflow_schemas.identity import operation_cause
from onceflow_schemas.operations import rulings
from onceflow_schemas.operations.evidence import Evidence, evidence_json
from onceflow_schemas.operations.freeze import rekeyed
from onceflow_schemas.sql import queries

LOCK_TIMEOUT_MS = 5_000
STATEMENT_TIMEOUT_MS = 10_000

_SQL = queries("operation_rulings")
_OPERATING = queries("operating")
_WAKE = queries("operation_requests")["wake"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decider:
    """Who decides and why, for the audit; without ``execute`` it is only looked at."""

    who: str
    reason: str
    execute: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What was decided, or would be.

    Attributes:
        read: the operation before it.
        becomes: what follows, in plain words.
        again: id of the operation that a retry makes; None for other decisions.
    """

    read: Read
    becomes: str
    again: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """A decision that passed its checks: the statements, and what the audit says after it."""

    decided: Decided
    after: Mapping[str, Any]
    write: Callable[[Connection[Any]], None] = field(repr=False)


def resolve(
    connection: Connection[Any], operation_id: UUID, *, outcome: Literal["succeeded", "failed"], decider: Decider
) -> Decided:
    """Say how an operation in review or unknown has ended; a worker settles it so, callback included.

    Args:
        connection: idle; left idle.
        operation_id: its id.
        outcome: how it ended.
        decider: who, why, and whether it is done.

    Raises:
        Refused: ``operation_missing``, ``ruling_refused``.
    """

    def plan(read: Read) -> _Plan:
        change = rulings.resolve(read.operation, outcome, reason=decider.reason, now=read.now)
        evidence = rulings.ruling(outcome, decider.reason)
        tells = "" if change.tells else "; its settled callback has run for this state before"
        becomes = f"{outcome}, settled by the next worker that knows its effect{tells}"
        return _concluded(read, evidence, becomes=becomes, decision=outcome, decider=decider)

    return _decide(connection, operation_id, "resolve", plan=plan, decider=decider)


def cancel(connection: Connection[Any], operation_id: UUID, *, decider: Decider) -> Decided:
    """Have an operation canceled: before anything was sent, or by closing the intent of a charge.

    Raises:
        Refused: ``operation_missing``, ``ruling_refused``.
    """

    def plan(read: Read) -> _Plan:
        evidence = rulings.cancel(read.operation, now=read.now)
        if evidence is not None:
            becomes = "its intent is cancelled next; canceled only when that is certain"
            return _concluded(read, evidence, becomes=becomes, decision="cancel", decider=decider)
        decided = Decided(read=read, becomes="its cancel is noted; a worker does it as soon as it can be done")
        return _Plan(
            decided=decided,
            after={"cancel_asked": True},
            write=lambda opened: _run(opened, "cancel", {"id": operation_id}),
        )

    return _decide(connection, operation_id, "cancel", plan=plan, decider=decider)


def retry(connection: Connection[Any], operation_id: UUID, *, decider: Decider) -> Decided:
    """Ask for a failed or canceled operation again: the same frozen calls under the id of the next occurrence.

    Of one whose end is known, and whose settled callback has failed, that callback is tried again at once; nothing is sent.

    Raises:
        Refused: ``operation_missing``, ``ruling_refused``: it has not failed, or the next occurrence is there already.
    """

    def plan(read: Read) -> _Plan:
        operation = read.operation
        if rulings.only_to_settle(operation):
            becomes = "it is settled as is known, its settled callback tried at once; nothing is sent"
            return _Plan(
                decided=Decided(read=read, becomes=becomes),
                after={"settled_again": True},
                write=lambda opened: _run(opened, "settle_now", {"id": operation_id}),
            )
        occurrence, again = rulings.retry(operation)
        given = {
            "id": operation_id,
            "again": again,
            "occurrence": occurrence,
            "cause": operation_cause(operation_id, operation.state),
            "steps": rekeyed(read.steps, former=operation_id, again=again),
        }

        def write(opened: Connection[Any]) -> None:
            if opened.execute(_SQL["retry"], given).rowcount != 1:
                raise Refused("ruling_refused", f"occurrence {occurrence} was asked for already: {again}")

        becomes = f"the same is asked for again, as occurrence {occurrence}: {again}"
        decided = Decided(read=read, becomes=becomes, again=again)
        return _Plan(decided=decided, after={"again": str(again), "occurrence": occurrence}, write=write)

    return _decide(connection, operation_id, "retry", plan=plan, decider=decider)


def let_account_go_on(connection: Connection[Any], account: str, *, mode: str, decider: Decider) -> str | None:
    """Have a paused account tried at once; return why it was paused, None when its limit was met.

    Raises:
        Refused: ``ruling_refused``: it is not paused.
    """
    given = {"account": account, "mode": mode}
    with connection.transaction():
        _set_limits(connection)
        with connection.cursor(row_factory=dict_row) as cursor:
            row = cursor.execute(_SQL["account_lock"], given).fetchone()
        if row is None or row["blocked_until"] is None:
            raise Refused(
                "ruling_refused", f"{account} ({mode}) is not paused", "`onceflow operations accounts` shows them."
            )
        if decider.execute:
            connection.execute(_SQL["account_go_on"], given)
            subject = f"account {account} ({mode})"
            _audit(connection, "account_go_on", subject=subject, before=row, after={"blocked_until": None}, by=decider)
    if decider.execute:
        _wake(connection)
    reason: str | None = row["paused_reason"]
    return reason


def _decide(
    connection: Connection[Any], operation_id: UUID, action: str, *, plan: Callable[[Read], _Plan], decider: Decider
) -> Decided:
    with connection.transaction():
        _set_limits(connection)
        if decider.execute:
            # A statement of its own: what is read after it is what nobody can change meanwhile.
            _run(connection, "lock", {"id": operation_id})
        read = read_operation(connection, operation_id)
        planned = plan(read)
        if decider.execute:
            planned.write(connection)
            subject = f"operation {operation_id}"
            _audit(
                connection,
                f"operation_{action}",
                subject=subject,
                before=_before(read),
                after=planned.after,
                by=decider,
            )
    if decider.execute:
        _wake(connection)
    return planned.decided


def _concluded(read: Read, evidence: Evidence, *, becomes: str, decision: str, decider: Decider) -> _Plan:
    operation_id = read.operation.id
    kept = evidence_json(evidence)
    concluded = {"id": operation_id, "conclusion": json.dumps(kept), "cancel": decision == "cancel"}
    decided = {"id": operation_id, "who": decider.who, "decision": decision, "reason": decider.reason}

    def write(opened: Connection[Any]) -> None:
        _run(opened, "conclude", concluded)
        _run(opened, "review_decide", decided)

    return _Plan(decided=Decided(read=read, becomes=becomes), after={"conclusion": kept}, write=write)


def _before(read: Read) -> dict[str, Any]:
    operation = read.operation
    return {
        "state": operation.state.value,
        "step": operation.present.name,
        "external_id": operation.external_id,
        "fence": operation.fence,
        "review_code": operation.review_code,
        "last_error": operation.last_error,
    }


def _audit(
    connection: Connection[Any],
    action: str,
    *,
    subject: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    by: Decider,
) -> None:
    audited = {
        "who": by.who,
        "action": action,
        "subject": subject,
        "before": json.dumps(before, default=str),
        "after": json.dumps(after, default=str),
        "reason": by.reason,
    }
    connection.execute(_OPERATING["audit"], audited)


def _run(connection: Connection[Any], name: str, given: Mapping[str, Any]) -> None:
    connection.execute(_SQL[name], given)


def _set_limits(connection: Connection[Any]) -> None:
    given = {"lock_timeout": f"{LOCK_TIMEOUT_MS}ms", "statement_timeout": f"{STATEMENT_TIMEOUT_MS}ms"}
    connection.execute(_OPERATING["limits"], given)


def _wake(connection: Connection[Any]) -> None:
    """Tell the workers, in a transaction of its own: other commits need not wait for it."""
    with connection.transaction():
        connection.execute(_WAKE)
