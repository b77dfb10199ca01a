"""Running the handlers of a batch: without savepoints first, with one savepoint per chunk after a failure.

Rule: a failing handler takes only its own event.  Nothing is written here but what handlers execute themselves; what
they ask for is returned.
"""

from __future__ import annotations

import inspect
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import psycopg
from psycopg import Connection
from psycopg.pq import PipelineStatus, TransactionStatus

from onceflow_processor.admission import Fault, Item
from onceflow_processor.breaker import Breaker
from onceflow_processor.deadline import Deadline, HandlerDeadline
from onceflow_processor.effects import Effects
from onceflow_processor.event import Event
from onceflow_processor.guards import Placed
from onceflow_processor.handler_failure import (
    TRIES_MAX,
    ConnectionLost,
    CutBefore,
    HandlerFailed,
    count_try,
    log_failure,
)
from onceflow_processor.handler_fault import fault_of, word_of
from onceflow_processor.handlers import Handler, Handlers
from onceflow_processor.known import Known
from onceflow_processor.operations.asked import AskedByNeighbour
from onceflow_processor.operations.request import RequestRules
from onceflow_processor.ordering import is_left_out
from onceflow_processor.read_course import fault_before, met_by, settle_place
from onceflow_processor.sqlstates import Meaning, meaning_of, sqlstate_of
from onceflow_processor.tx import Requests, Tx
from onceflow_producer.failpoint import hit
from onceflow_schemas.failure import Refused
from onceflow_schemas.sql import queries

CHUNK_EVENTS = 25
"""Events per savepoint: one per event costs two thirds of the rate, and 64 overflow the backend's cache."""

STOPPING_SECONDS_MAX = 2.0
"""A batch in hand may still take so long when the process is asked to stop; then it is rolled back, which is safe."""

RERUNS_OF_EVENT_MAX = 5
"""Faults of the moment in the handlers of one event, such as a lock that somebody holds; after that the event waits alone."""

_STATEMENT_CANCELED = "57014"

_SQL = queries("batch")


@dataclass(frozen=True, slots=True)
class HandlerSettings:
    """What running handlers needs to know; lengths of time in seconds, sizes in bytes; ``stopping`` tells of SIGTERM.

    ``requests`` says which operations may be asked for; None: none.  ``read_objects``: events may wait for a read at Stripe.
    """

    handlers: Handlers
    lane_count: int
    value_bytes_max: int
    batch_seconds_max: float
    set_limits: Callable[[Connection[Any]], None]
    stopping: Callable[[], bool]
    requests: RequestRules | None = None
    read_objects: bool = False


class HandlerRun:
    """Runs the handlers of one attempt over one connection."""

    def __init__(
        self,
        connection: Connection[Any],
        *,
        settings: HandlerSettings,
        known: Known,
        deadline: Deadline,
        breaker: Breaker,
    ) -> None:
        self._connection = connection
        self._breaker = breaker
        self._settings = settings
        self._known = known
        rules = settings.requests
        self._requests = None if rules is None else Requests(known.operations, rules)
        self._deadline = deadline
        self._begun = time.monotonic()
        # Order keys of events that failed for good in this run: those behind them must not run.
        self._stopped: set[str] = set()

    def plain(self, work: Sequence[tuple[Item, Event]]) -> list[tuple[Item, Effects]]:
        """Run all, without savepoints.

        Raises:
            HandlerFailed: at the first failure that has to be rolled back.
            HandlerWaits: most recent events of a handler fail alike.
            CutBefore: when the time of a batch is over.
        """
        done: list[tuple[Item, Effects]] = []
        for item, event in work:
            if item.order_key in self._stopped:
                continue
            self._check_time(item, is_first=not done)
            try:
                effects = self._run_in_place(item, event, done)
            finally:
                self._deadline.disarm()
            if effects is not None:
                done.append((item, effects))
        return done

    def rehearse(self, item: Item, event: Event, *, is_first: bool = True) -> Effects:
        """Run an event's handlers once, for a transaction that is rolled back; raises as ``plain``, and counts no try."""
        self._check_time(item, is_first=is_first)
        try:
            return self._run_event(item, event)
        finally:
            self._deadline.disarm()

    def _run_in_place(self, item: Item, event: Event, done: Sequence[tuple[Item, Effects]]) -> Effects | None:
        """Run an event; one that failed before it did anything in the database is tried again here and now.

        Returns:
            None when it has failed too often and has its fault; nobody else's work was undone for it.
        """
        for _ in range(TRIES_MAX):
            try:
                return self._run_event(item, event)
            except HandlerFailed as failure:
                self.tell_successes(done)
                if failure.final or failure.touched:
                    raise
                count_try(failure, self._breaker)
                log_failure(failure)
                if item.fault is not None:
                    self._stopped.add(item.order_key)
                    return None
                event = event.read_again()
        raise AssertionError("the last try of an event gives it a fault")

    def with_savepoints(self, work: Sequence[tuple[Item, Event]]) -> list[tuple[Item, Effects]]:
        """Run in chunks, each in a savepoint; an event that failed too often gets its fault and is left out."""
        done: list[tuple[Item, Effects]] = []
        for start in range(0, len(work), CHUNK_EVENTS):
            chunk = work[start : start + CHUNK_EVENTS]
            self._check_time(chunk[0][0], is_first=start == 0)
            done.extend(self._run_chunk(chunk))
        return done

    def _run_chunk(self, chunk: Sequence[tuple[Item, Event]]) -> list[tuple[Item, Effects]]:
        """Run a chunk; where an event fails, those before it run again, it alone, and then those after it."""
        done: list[tuple[Item, Effects]] = []
        parts = deque([chunk])
        while parts:
            # Each part either succeeds or counts one try of one event, so the rounds are bounded.
            part = [
                (item, event)
                for item, event in parts.popleft()
                if item.fault is None and item.order_key not in self._stopped
            ]
            if not part:
                continue
            ran, failed_at = self._run_part(part)
            done.extend(ran)
            if failed_at is not None:
                part = [(item, event.read_again()) for item, event in part]
                parts.extendleft([part[failed_at + 1 :], part[failed_at : failed_at + 1], part[:failed_at]])
        return done

    def _run_part(self, part: Sequence[tuple[Item, Event]]) -> tuple[list[tuple[Item, Effects]], int | None]:
        """Run events in one savepoint: what they asked for, or nothing and the index of the one that failed."""
        self._connection.execute(_SQL["savepoint"])
        done: list[tuple[Item, Effects]] = []
        try:
            for item, event in part:
                done.append((item, self._run_event(item, event)))
        except HandlerFailed as failure:
            self.tell_successes(done)
            if failure.final or failure.spoils:
                raise
            count_try(failure, self._breaker)
            log_failure(failure)
            if failure.item.fault is not None:
                self._stopped.add(failure.item.order_key)
            self._connection.execute(_SQL["savepoint_rollback"])
            for _, effects in done:
                self._known.give_back(effects)
            return [], len(done)
        else:
            self._connection.execute(_SQL["savepoint_release"])
            self.tell_successes(done)
            return done, None
        finally:
            self._deadline.disarm()

    def tell_successes(self, done: Sequence[tuple[Item, Effects]]) -> None:
        """Tell the breaker, before the next failure, which events went well; those before the first failure need not be."""
        watches = bool(self._breaker.watched)
        for item, _ in done:
            if item.event is not None and not item.success_told:
                item.success_told = True
                if watches:
                    handlers = self._settings.handlers.for_type(item.event.type)
                    self._breaker.went_well(handler.name for handler in handlers)

    def _run_event(self, item: Item, event: Event) -> Effects:
        handlers, found = self._settings.handlers.for_type(event.type), self._known.reads.of(event.identity)
        effects = Effects(placed=self._place(item, event, handlers=handlers))
        if effects.placed is not None:
            event = effects.placed.shown(event)
        for handler in handlers:
            if effects.placed is not None and is_left_out(handler, event, effects=effects, facts=self._known.facts):
                continue
            may_have_set = False
            try:
                met = met_by(handler, event, placed=effects.placed, found=found) if self._known.reads.enabled else event
                may_have_set = self._run_handler(handler, met, effects)
            except HandlerDeadline:
                self._known.give_back(effects)
                # Waiting for the database, the network or the server may be at fault, so that it is tried again.
                waits = self._connection.info.transaction_status == TransactionStatus.ACTIVE
                fault = Fault("handler_timeout", "the handler ran longer than its deadline", handler.name, blocks=True)
                raise HandlerFailed(item, fault, final=not waits) from None
            except AskedByNeighbour:
                raise CutBefore(item) from None
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a handler may raise anything.
                self._known.give_back(effects)
                self._refuse(item, handler, error, touched=effects.touched)
            hit("processor.after_handler")
            if self._known.operations.met_neighbour:
                # The handler swallowed it, and went on as if it had asked.
                raise CutBefore(item)
            self._check_transaction(item, handler, effects)
            if may_have_set:
                self._restore_session(item, handler, effects)
            self._handler_ended(handler)
        if effects.placed is not None:
            self._known.guards.advance(effects.placed)
        return effects

    def _place(self, item: Item, event: Event, *, handlers: Sequence[Handler]) -> Placed | None:
        """Say what an event is to its object.

        Raises:
            HandlerFailed: before anything was done, when something has to be read at Stripe first, or could not be.
        """
        placed, reads = self._known.guards.place(event.identity), self._known.reads
        if not reads.enabled:
            return placed
        found = reads.of(event.identity)
        placed = settle_place(placed, event, handlers=handlers, found=found)
        fault = fault_before(event, placed, handlers=handlers, found=found)
        if fault is not None:
            raise HandlerFailed(item, fault, touched=False)
        return placed

    def _run_handler(self, handler: Handler, event: Event, effects: Effects) -> bool:
        """Run one handler; True when it may have changed settings of the session."""
        transaction = self._transaction(handler, event, effects)
        self._deadline.arm()
        try:
            call(handler, event, transaction=transaction)
            self._deadline.disarm()
        finally:
            transaction.end()
        return transaction.may_have_set

    def _transaction(self, handler: Handler, event: Event, effects: Effects) -> Tx:
        """Return what a handler gets; a rerun gives it another one."""
        return Tx(self._connection, **self._given(handler, event, effects))

    def _given(self, handler: Handler, event: Event, effects: Effects) -> dict[str, Any]:
        return {
            "cause": event.cause,
            "handler": handler.name,
            "effects": effects,
            "facts": self._known.facts,
            "lane_count": self._settings.lane_count,
            "value_bytes_max": self._settings.value_bytes_max,
            "requests": self._requests,
            "origin": event,
        }

    def _handler_ended(self, handler: Handler) -> None:
        """A handler went well, and the transaction is in order; a rerun undoes its SQL here."""

    def _restore_session(self, item: Item, handler: Handler, effects: Effects) -> None:
        """Give the next handler the session that this one found: what it SET would otherwise be its neighbours' fault."""
        try:
            with self._connection.pipeline():
                reset_session(self._connection)
                self._settings.set_limits(self._connection)
                self._connection.execute(_SQL["session_check"])
        except psycopg.Error as error:
            self._known.give_back(effects)
            if meaning_of(error) is Meaning.GUARD:
                raise HandlerFailed(item, _broke(handler), final=True) from error
            raise

    def _refuse(self, item: Item, handler: Handler, error: BaseException, *, touched: bool) -> None:
        """Turn what a handler raised into a fault of its event, unless the database or the moment is at fault."""
        self._check_not_closed(item, handler)
        if self._connection.closed:
            raise ConnectionLost(item) from error
        if word_of(error) is None:
            self._raise_where_nobody_is_at_fault(item, error)
        if self._connection.info.transaction_status == TransactionStatus.IDLE:
            raise HandlerFailed(item, _broke(handler), final=True) from error
        raise HandlerFailed(item, fault_of(error, handler=handler.name), touched=touched) from error

    def _raise_where_nobody_is_at_fault(self, item: Item, error: BaseException) -> None:
        """A database that is away, or a fault of the moment: the batch is run again.  What stays is the event's."""
        match meaning_of(error):
            case Meaning.AWAY if sqlstate_of(error) is not None or self._connection.broken:
                raise error
            case Meaning.RERUN if sqlstate_of(error) != _STATEMENT_CANCELED and item.reruns < RERUNS_OF_EVENT_MAX:
                item.reruns += 1
                raise error
            case _:
                return

    def _check_transaction(self, item: Item, handler: Handler, effects: Effects) -> None:
        """A handler that swallowed its own SQL error, or ended the transaction, must not pass as successful."""
        if self._connection.pgconn.pipeline_status != PipelineStatus.OFF:
            # Whatever is still on its way in the handler's pipeline would mix with ours.
            self._known.give_back(effects)
            self._connection.close()
            raise HandlerFailed(item, _broke(handler), final=True)
        status = self._connection.info.transaction_status
        if status == TransactionStatus.INTRANS:
            return
        self._known.give_back(effects)
        self._check_not_closed(item, handler)
        if self._connection.closed:
            raise ConnectionLost(item)
        if status == TransactionStatus.INERROR:
            detail = "the handler swallowed an SQL error, so its transaction is lost"
            raise HandlerFailed(item, Fault("handler_failed", detail, handler.name, blocks=True))
        raise HandlerFailed(item, _broke(handler), final=True)

    def _check_not_closed(self, item: Item, handler: Handler) -> None:
        """A handler that closed the connection is at fault; one whose server went away is not."""
        if self._connection.closed and not self._connection.broken:
            raise HandlerFailed(item, _broke(handler), final=True)

    def _check_time(self, item: Item, *, is_first: bool) -> None:
        if is_first:
            return
        seconds_max = STOPPING_SECONDS_MAX if self._settings.stopping() else self._settings.batch_seconds_max
        if time.monotonic() - self._begun > seconds_max:
            raise CutBefore(item)


def reset_session(connection: Connection[Any]) -> None:
    """Undo whatever handlers have SET in the session; called in a pipeline."""
    for query in ("session_reset", "session_reset_role", "session_reset_authorization"):
        connection.execute(_SQL[query])


def call(handler: Handler, event: Event, *, transaction: Tx) -> None:
    """Call a handler's function; what an async function gives back is refused, because nothing of it has run.

    Raises:
        Refused: ``handler_failed``, or whatever the function raises.
    """
    returned = cast("Callable[[Event, Tx], object]", handler.function)(event, transaction)
    if returned is not None and inspect.isawaitable(returned):
        if inspect.iscoroutine(returned):
            returned.close()
        raise Refused("handler_failed", "the handler returned an awaitable: handlers are plain functions")


def _broke(handler: Handler) -> Fault:
    detail = "the handler committed or rolled back the batch"
    return Fault("handler_broke_transaction", detail, handler.name, blocks=True)
