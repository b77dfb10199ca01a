"""Running a settled callback inside the transaction that closes its operation.

Rule: as with a handler, SQL runs at once, outcomes, facts and operations are collected; a callback that ends the
transaction, swallows its error or runs too long has failed, and then its operation is settled later.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import psycopg
from psycopg import Connection
from psycopg.pq import PipelineStatus, TransactionStatus

from onceflow_processor.deadline import Deadline, HandlerDeadline
from onceflow_processor.effects import Effects
from onceflow_processor.handler_run import reset_session
from onceflow_processor.known import Known
from onceflow_processor.operations.asked import AskedByNeighbour
from onceflow_processor.operations.effect import Effect, Settled, SettledFunction
from onceflow_processor.operations.request import RequestRules
from onceflow_processor.sqlstates import Meaning, meaning_of
from onceflow_processor.tx import Requests, Tx
from onceflow_producer.failpoint import hit
from onceflow_schemas.failure import Failure
from onceflow_schemas.operations.operation import Operation
from onceflow_schemas.sql import queries

REASON_CHARACTERS_MAX = 500
_STATEMENT_CANCELED = "57014"
_ENDED = "the settled callback committed or rolled back the transaction"
_NEIGHBOUR = "a settled callback of the same transaction asked for the same operation with other arguments"
_SQL = queries("batch")


BROKE = "handler_broke_transaction"


class CallbackFailed(Exception):
    """A callback has failed, with a stable code as of handlers; ``spoiled``: the connection cannot be used any more."""

    def __init__(self, operation: Operation, code: str, detail: str, *, spoiled: bool = False) -> None:
        self.operation = operation
        self.reason = coded(code, detail)
        self.spoiled = spoiled
        super().__init__(self.reason)


def coded(code: str, detail: str) -> str:
    """Return a reason of one line, of ``REASON_CHARACTERS_MAX`` at most."""
    return " ".join(f"{code}: {detail}".split())[:REASON_CHARACTERS_MAX]


@dataclass(frozen=True, slots=True)
class CallbackSettings:
    """What running callbacks needs to know; sizes in bytes."""

    effects: Mapping[str, Effect]
    rules: RequestRules
    lane_count: int
    value_bytes_max: int
    set_limits: Callable[[Connection[Any]], None]

    def callback_of(self, operation: Operation) -> SettledFunction | None:
        """Return what the user registered for the end of this operation's effect."""
        return self.effects[operation.effect].callback


@dataclass(frozen=True, slots=True)
class _Origin:
    """What an operation of a callback is asked for by; it goes back to what the settled one goes back to."""

    account: str
    mode: str
    created: datetime


def settled_of(operation: Operation) -> Settled:
    """Return an operation as its callback sees it."""
    return Settled(
        id=str(operation.id),
        effect=operation.effect,
        subject=operation.subject,
        occurrence=operation.occurrence,
        order_key=operation.order_key,
        account=operation.account,
        mode=operation.mode,
        state=operation.state.value,
        args=operation.args,
        external_id=operation.external_id,
        result=operation.result or {},
    )


class CallbackRun:
    """Runs the callbacks of one transaction over one connection."""

    def __init__(
        self, connection: Connection[Any], *, settings: CallbackSettings, known: Known, deadline: Deadline
    ) -> None:
        self._connection = connection
        self._settings = settings
        self._known = known
        self._deadline = deadline
        self.running: Operation | None = None
        """Whose callback runs, or was the last to run when the connection was lost."""

    def run(self, operation: Operation, function: SettledFunction) -> Effects:
        """Run the callback of an operation in its new state; return what it asked for.

        Raises:
            CallbackFailed: it is at fault.
            psycopg.Error: the database is, or the moment.
        """
        effects = Effects()
        settled = settled_of(operation)
        self.running = operation
        transaction = Tx(
            self._connection,
            cause=settled.cause,
            handler=operation.effect,
            effects=effects,
            facts=self._known.facts,
            lane_count=self._settings.lane_count,
            value_bytes_max=self._settings.value_bytes_max,
            requests=Requests(self._known.operations, self._settings.rules),
            origin=_Origin(operation.account, operation.mode, operation.window_from),
        )
        try:
            self._deadline.arm()
            hit("operator.in_callback")
            _call(function, settled, transaction)
        except HandlerDeadline:
            reason = "the settled callback ran longer than its deadline"
            raise CallbackFailed(operation, "handler_timeout", reason, spoiled=True) from None
        except AskedByNeighbour:
            raise CallbackFailed(operation, "operation_conflict", _NEIGHBOUR) from None
        except (Exception, SystemExit) as error:
            if self._is_the_moments(error):
                raise
            raise self._failed(operation, error) from error
        finally:
            self._deadline.disarm()
            transaction.end()
        if self._known.operations.met_neighbour:
            # The callback swallowed it, and went on as if it had asked.
            raise CallbackFailed(operation, "operation_conflict", _NEIGHBOUR)
        self._check_transaction(operation)
        if transaction.may_have_set:
            self._restore_session(operation)
        self.running = None
        return effects

    def _is_the_moments(self, error: BaseException) -> bool:
        """Say whether the database is at fault, or the moment, and not the callback that it happened to."""
        if not isinstance(error, psycopg.Error):
            return False
        meaning = meaning_of(error)
        canceled = error.sqlstate == _STATEMENT_CANCELED
        return self._connection.broken or meaning is Meaning.AWAY or (meaning is Meaning.RERUN and not canceled)

    def _check_transaction(self, operation: Operation) -> None:
        """A callback that swallowed its own SQL error, or ended the transaction, must not pass as successful."""
        if self._connection.broken:
            raise psycopg.OperationalError("the connection was lost while a callback ran")
        if self._connection.closed or self._connection.pgconn.pipeline_status != PipelineStatus.OFF:
            raise CallbackFailed(operation, BROKE, "the settled callback left the connection unusable", spoiled=True)
        status = self._connection.info.transaction_status
        if status == TransactionStatus.INERROR:
            reason = "the settled callback swallowed an SQL error, so its transaction is lost"
            raise CallbackFailed(operation, "handler_failed", reason)
        if status != TransactionStatus.INTRANS:
            raise CallbackFailed(operation, BROKE, _ENDED)

    def _failed(self, operation: Operation, error: BaseException) -> CallbackFailed:
        """What a callback raised, in a line: a stable code, and of the database's words the first line only."""
        if self._connection.closed:
            return CallbackFailed(operation, BROKE, "the settled callback closed the connection", spoiled=True)
        if self._connection.info.transaction_status == TransactionStatus.IDLE:
            return CallbackFailed(operation, BROKE, _ENDED)
        if isinstance(error, Failure):
            return CallbackFailed(operation, error.code, error.message)
        text = str(error)
        if isinstance(error, psycopg.Error):
            # The further lines may quote data.
            text = (text.splitlines() or [""])[0]
        return CallbackFailed(operation, "handler_failed", f"{type(error).__name__}: {text}")

    def _restore_session(self, operation: Operation) -> None:
        try:
            with self._connection.pipeline():
                reset_session(self._connection)
                self._settings.set_limits(self._connection)
                self._connection.execute(_SQL["session_check"])
        except psycopg.Error as error:
            if meaning_of(error) is Meaning.GUARD:
                raise CallbackFailed(operation, BROKE, "the settled callback made the transaction read only") from error
            raise


def _call(function: SettledFunction, settled: Settled, transaction: Tx) -> None:
    returned = cast("Callable[[Settled, Tx], object]", function)(settled, transaction)
    if inspect.isawaitable(returned):
        if inspect.iscoroutine(returned):
            returned.close()
        raise TypeError("it returned an awaitable: callbacks are plain functions")
