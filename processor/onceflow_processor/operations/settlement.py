"""Writing down what calls have proved: rows, attempts, settled callbacks and their outcomes, in one transaction.

Rule: an operation's new state, what its callback did and its outcomes are committed together or not at all.  A callback
that fails costs only its own operation: the proof is kept in the row, and nothing is called again for it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import psycopg
import structlog
from psycopg import Connection
from psycopg.pq import TransactionStatus

from onceflow_processor.arrays import Bigints, Uuids
from onceflow_processor.database import first_line
from onceflow_processor.deadline import Deadline
from onceflow_processor.effects import Effects, Outcome
from onceflow_processor.handler_run import reset_session
from onceflow_processor.known import Known
from onceflow_processor.look_up import look_up_facts, look_up_operations
from onceflow_processor.operations.budget import Answer, Block, blocks, opened
from onceflow_processor.operations.callback import (
    BROKE,
    REASON_CHARACTERS_MAX,
    CallbackFailed,
    CallbackRun,
    CallbackSettings,
    coded,
)
from onceflow_processor.operations.job import Finished
from onceflow_processor.operations.ledger_columns import (
    attempt_columns,
    block_columns,
    review_columns,
    write_columns,
)
from onceflow_processor.operations.plan import costs
from onceflow_processor.operations.settling import Fresh, Settlement, concluded, settle
from onceflow_processor.sqlstates import Meaning, meaning_of
from onceflow_processor.tail import NotCommitted, check_committed, outcome_columns, write_claims, write_claims_again
from onceflow_producer.failpoint import hit
from onceflow_schemas.failure import Unavailable
from onceflow_schemas.operations.limits import Limits
from onceflow_schemas.sql import queries

RERUNS_MAX = 5
ROUND_SECONDS_MAX = 5.0
"""Callbacks that take longer together are cut here: leases must be kept in between."""

LOST_CONNECTIONS_MAX = 3
"""So often a callback may have the connection lost before it counts as its own doing."""

CANCEL_SECONDS_MAX = 2.0
_GUARD_BITS = 62
_SQL = queries("operation_work")
_BATCH = queries("batch")

log = structlog.get_logger("onceflow.operations")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What a round of settling has done.

    Attributes:
        settlements: committed.
        left: jobs that the time of this round was not enough for.
        kept: jobs whose callback failed, with the reason; their proof is in the row.
        fenced: jobs that somebody else has by now; nothing was written for them.
        lanes_closed: a lane handed out no sequence.
        outcomes: number of outcomes written.
    """

    settlements: Sequence[Settlement] = ()
    left: Sequence[Finished] = ()
    kept: Sequence[tuple[Finished, str]] = ()
    fenced: Sequence[Finished] = ()
    lanes_closed: bool = False
    outcomes: int = 0


class _Alone(Exception):
    """These jobs cannot be settled together."""

    def __init__(self, reason: str, *, lanes_closed: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.lanes_closed = lanes_closed


class Settling:
    """Settles finished jobs over one connection."""

    def __init__(
        self,
        connection: Connection[Any],
        *,
        owner: str,
        mode: str,
        limits: Limits,
        callbacks: CallbackSettings,
        known: Known,
        deadline: Deadline,
        suspects: dict[UUID, int],
    ) -> None:
        """``suspects`` outlives the connection: operations whose callback cost one, and how often."""
        self._connection = connection
        self._owner = owner
        self._mode = mode
        self._limits = limits
        self._callbacks = callbacks
        self._known = known
        self._run = CallbackRun(connection, settings=callbacks, known=known, deadline=deadline)
        self._suspects = suspects

    def settle(self, finished: Sequence[Finished], *, refusals: dict[str, int]) -> Round:
        """Write down what these jobs have proved: together, and one by one where that fails.

        Args:
            finished: all with evidence.
            refusals: what is known of refused keys; brought up to date.

        Raises:
            Unavailable: the database is away, or a callback cost us the connection; what is not written is settled again.
        """
        doomed = [one for one in finished if self._suspects.get(one.job.operation.id, 0) >= LOST_CONNECTIONS_MAX]
        rest = [one for one in finished if one not in doomed]
        parts = [self._keep(one, coded(BROKE, "its settled callback cost the connection")) for one in doomed]
        if rest:
            try:
                parts.append(self._together(rest, refusals))
            except _Alone:
                parts.extend(self._one_by_one(rest, refusals))
        left = [one for part in parts for one in part.left]
        for one in finished:
            if one not in left:
                self._suspects.pop(one.job.operation.id, None)
        return Round(
            settlements=[settlement for part in parts for settlement in part.settlements],
            left=left,
            kept=[kept for part in parts for kept in part.kept],
            fenced=[one for part in parts for one in part.fenced],
            lanes_closed=any(part.lanes_closed for part in parts),
            outcomes=sum(part.outcomes for part in parts),
        )

    def _one_by_one(self, finished: Sequence[Finished], refusals: dict[str, int]) -> Iterator[Round]:
        begun = time.monotonic()
        for number, one in enumerate(finished):
            if number and time.monotonic() - begun > ROUND_SECONDS_MAX:
                yield Round(left=finished[number:])
                return
            yield self._alone(one, refusals)

    def _alone(self, one: Finished, refusals: dict[str, int]) -> Round:
        try:
            return self._together([one], refusals)
        except _Alone as failure:
            kept = self._keep(one, failure.reason)
            return Round(kept=kept.kept, fenced=kept.fenced, lanes_closed=failure.lanes_closed)

    def _together(self, finished: Sequence[Finished], refusals: dict[str, int]) -> Round:
        """Settle in one transaction; what passes by itself is tried again.

        Raises:
            _Alone: one of them is at fault.
            Unavailable: as in ``settle``.
        """
        for _ in range(RERUNS_MAX):
            self._run.running = None
            try:
                return self._attempt(finished, refusals)
            except CallbackFailed as failure:
                self._after_callback(failure)
                raise _Alone(failure.reason) from failure
            except (psycopg.Error, NotCommitted) as error:
                self._after_error(error, finished)
        raise _Alone("it met too many passing faults")

    def _attempt(self, finished: Sequence[Finished], refusals: dict[str, int]) -> Round:
        has_callbacks = any(self._callbacks.callback_of(one.job.operation) is not None for one in finished)
        guard = secrets.randbits(_GUARD_BITS) + 1 if has_callbacks else None
        fresh = self._lock(finished, guard=guard)
        ours = [one for one in finished if one.job.operation.id in fresh]
        settlements = [
            replace(
                settle(one.job, one.evidence, fresh=fresh[one.job.operation.id], limits=self._limits),
                seconds=one.seconds,
            )
            for one in ours
            if one.evidence is not None
        ]
        effects, count = self._run_callbacks(settlements)
        ours, left, settlements = ours[:count], ours[count:], settlements[:count]
        outcomes = [outcome for one in effects for outcome in one.outcomes]
        answers = [
            Answer(one.job.operation.account, one.evidence, one.job.probe) for one in settlements if costs(one.job)
        ]
        blocked = blocks(answers, refusals=refusals)
        reopened = opened(answers, blocked=blocked)
        with self._connection.pipeline():
            self._write_claims(effects)
            self._write_rows(ours, settlements)
            self._write_budgets(blocked, reopened)
            self._write_outcomes(outcomes, guard=guard)
            commit = self._connection.execute(_BATCH["commit"])
        check_committed(commit)
        hit("operator.after_settle_commit")
        self._known.commit()
        for account in reopened:
            refusals.pop(account, None)
        refusals.update({block.account: block.refusals for block in blocked if block.reason is not None})
        fenced = [one for one in finished if one.job.operation.id not in fresh]
        return Round(settlements=settlements, left=left, fenced=fenced, outcomes=len(outcomes))

    def _lock(self, finished: Sequence[Finished], *, guard: int | None) -> dict[UUID, Fresh]:
        """Begin, and lock the rows that are still ours, in one round trip."""
        given = {
            "ids": Uuids(one.job.operation.id for one in finished),
            "fences": Bigints(one.job.operation.fence for one in finished),
            "owner": self._owner,
        }
        cursor = self._connection.cursor()
        with self._connection.pipeline():
            if guard is not None:
                reset_session(self._connection)
            self._callbacks.set_limits(self._connection)
            if guard is not None:
                self._connection.execute(_BATCH["guard_open"], {"guard": guard})
            cursor.execute(_SQL["settle_lock"], given)
        return {
            found: Fresh(cancel_asked=cancel_asked, look_asked=look_asked, look_at=look_at, now=locked_at)
            for found, cancel_asked, look_asked, look_at, locked_at in cursor.fetchall()
        }

    def _run_callbacks(self, settlements: Sequence[Settlement]) -> tuple[list[Effects], int]:
        """Run them in their order; returns what they asked for, and how many settlements there was time for."""
        effects: list[Effects] = []
        begun = time.monotonic()
        for number, settlement in enumerate(settlements):
            if effects and time.monotonic() - begun > ROUND_SECONDS_MAX:
                return effects, number
            operation = settlement.row.operation
            function = self._callbacks.callback_of(operation)
            if settlement.tells and function is not None:
                effects.append(self._run.run(operation, function))
        return effects, len(settlements)

    def _write_claims(self, effects: Sequence[Effects]) -> None:
        facts, operations = self._known.facts.claimed(), self._known.operations.asked()
        if facts or operations:
            write_claims(self._connection, facts=facts, operations=operations)
        again = [claim for one in effects for claim in one.again]
        if again:
            write_claims_again(self._connection, again)

    def _write_rows(self, finished: Sequence[Finished], settlements: Sequence[Settlement]) -> None:
        if any(one.job.attempt for one in finished):
            self._connection.execute(_SQL["attempts_settle"], attempt_columns(finished))
        if settlements:
            self._connection.execute(_SQL["operations_write"], write_columns([one.row for one in settlements]))
        ordered = [one.row.operation.id for one in settlements if one.row.operation.order_key and one.tells]
        if ordered:
            self._connection.execute(_SQL["order_next"], {"ids": Uuids(ordered), "mode": self._mode})
        reviews = [(one.row.operation.id, one.review, one.evidence) for one in settlements if one.review is not None]
        if reviews:
            self._connection.execute(_SQL["reviews_open"], review_columns(reviews))
        closed = [one.row.operation.id for one in settlements if one.leaves_review]
        if closed:
            self._connection.execute(_SQL["reviews_close"], {"operation_ids": closed, "owner": self._owner})

    def _write_budgets(self, blocked: Sequence[Block], reopened: Sequence[str]) -> None:
        if blocked:
            self._connection.execute(_SQL["budget_block"], block_columns(blocked, mode=self._mode))
        if reopened:
            self._connection.execute(_SQL["budget_open"], {"accounts": list(reopened), "mode": self._mode})

    def _write_outcomes(self, outcomes: Sequence[Outcome], *, guard: int | None) -> None:
        if guard is not None:
            self._connection.execute(_BATCH["tail_guard"], {"guard": guard})
        hit("operator.before_settle_commit")
        if outcomes:
            self._connection.execute(_BATCH["tail_outcomes"], outcome_columns(outcomes, self._known.facts.claimed()))

    def _keep(self, one: Finished, reason: str) -> Round:
        """Keep what was proved in the row, give the lease up, and settle later."""
        evidence = one.evidence
        assert evidence is not None, "only what is proved is settled"
        try:
            fresh = self._lock([one], guard=None).get(one.job.operation.id)
            if fresh is None:
                self._connection.rollback()
                return Round(fenced=[one])
            settlement = settle(one.job, evidence, fresh=fresh, limits=self._limits)
            row = concluded(settlement, reason=reason, fresh=fresh, limits=self._limits)
            with self._connection.pipeline():
                if one.job.attempt:
                    self._connection.execute(_SQL["attempts_settle"], attempt_columns([one]))
                self._connection.execute(_SQL["operations_write"], write_columns([row]))
                commit = self._connection.execute(_BATCH["commit"])
            check_committed(commit)
        except (psycopg.Error, NotCommitted) as error:
            self._roll_back()
            raise Unavailable("database_unavailable", first_line(error)) from error
        return Round(kept=[(one, reason)])

    def _after_callback(self, failure: CallbackFailed) -> None:
        """Clean up; a connection that the callback has spoiled is replaced, and the callback is not run again at once."""
        if not failure.spoiled:
            self._roll_back()
            return
        self._known.roll_back()
        self._suspects[failure.operation.id] = LOST_CONNECTIONS_MAX
        with suppress(psycopg.Error):
            self._connection.cancel_safe(timeout=CANCEL_SECONDS_MAX)
        self._connection.close()
        raise Unavailable("database_unavailable", "a settled callback cost the connection") from failure

    def _after_error(self, error: Exception, finished: Sequence[Finished]) -> None:
        """Clean up after a failed statement; returns when the same is to be tried again.

        Raises:
            _Alone, Unavailable: as in ``_together``.
        """
        meaning = Meaning.RERUN if isinstance(error, NotCommitted) else meaning_of(error, ours=True)
        facts, operations = list(self._known.facts.claimed()), self._known.operations.asked()
        self._roll_back()
        if self._connection.closed or meaning is Meaning.AWAY:
            if self._run.running is not None:
                suspect = self._run.running.id
                self._suspects[suspect] = self._suspects.get(suspect, 0) + 1
            raise Unavailable("database_unavailable", first_line(error)) from error
        match meaning:
            case Meaning.FACT:
                look_up_facts(self._connection, self._known.facts, keys=facts)
            case Meaning.CONFLICT:
                ids = [one.id for one in operations]
                look_up_operations(self._connection, self._known.operations, ids=ids)
            case Meaning.RERUN if not isinstance(error, psycopg.errors.LockNotAvailable):
                log.info("settling_again", reason=first_line(error), operations=len(finished))
            case _:
                raise _Alone(first_line(error, REASON_CHARACTERS_MAX), lanes_closed=meaning is Meaning.LANE) from error
        self._connection.rollback()

    def _roll_back(self) -> None:
        self._known.roll_back()
        try:
            if not self._connection.closed and self._connection.info.transaction_status != TransactionStatus.IDLE:
                self._connection.rollback()
        except psycopg.Error:
            # A connection that cannot roll back is lost; the server rolls back when it notices.
            self._connection.close()
