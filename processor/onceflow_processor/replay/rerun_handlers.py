"""Runs the handlers of events that were processed: their answers are recorded ones, and their own SQL is undone.

Rule: each handler runs in a savepoint.  It is rolled back unless the handler is declared ``rerun="safe"``, so what is kept is
what it asked for, which the tail writes.
"""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from onceflow_processor.breaker import Breaker
from onceflow_processor.deadline import Deadline
from onceflow_processor.effects import Effects, FactKey
from onceflow_processor.event import Event
from onceflow_processor.handler_run import HandlerRun, HandlerSettings
from onceflow_processor.handlers import Handler
from onceflow_processor.known import Known
from onceflow_processor.replay.recorded import RecordedTotals
from onceflow_processor.tx import Tx
from onceflow_schemas.sql import queries

_SQL = queries("replay")
_BOOKING = queries("booking")


class TotalMoved(Exception):
    """Somebody else raised a running total while a handler ran: the chunk runs again."""


class RerunTx(Tx):
    """A transaction whose running totals are answered as they were."""

    __slots__ = ("_totals",)

    def __init__(self, connection: Connection[Any], *, totals: RecordedTotals, **given: Any) -> None:
        super().__init__(connection, **given)
        self._totals = totals

    def _book(self, key: FactKey, total: int) -> int:
        recorded = self._totals.difference(key, cause=self._cause, total=total)
        if recorded is not None:
            return recorded
        difference = super()._book(key, total)
        self._totals.made.append((key, self._cause, total, difference))
        return difference


class RerunHandlers(HandlerRun):
    """The handlers of one transaction; ``totals`` answers their bookings."""

    def __init__(
        self,
        connection: Connection[Any],
        *,
        settings: HandlerSettings,
        known: Known,
        deadline: Deadline,
        breaker: Breaker,
        totals: RecordedTotals,
    ) -> None:
        super().__init__(connection, settings=settings, known=known, deadline=deadline, breaker=breaker)
        self._totals = totals

    def _transaction(self, handler: Handler, event: Event, effects: Effects) -> Tx:
        # What a handler booked before it failed was taken back with it, and must not be booked again for the next one.
        self._totals.made.clear()
        self._connection.execute(_SQL["savepoint_handler"])
        return RerunTx(self._connection, totals=self._totals, **self._given(handler, event, effects))

    def _handler_ended(self, handler: Handler) -> None:
        made = list(self._totals.made)
        self._totals.made.clear()
        if handler.rerun != "safe":
            self._connection.execute(_SQL["rollback_handler"])
        self._connection.execute(_SQL["release_handler"])
        if handler.rerun != "safe":
            self._book_again(made)

    def _book_again(self, made: list[tuple[FactKey, str, int, int]]) -> None:
        """What a handler booked is ours, and is kept: outside of the savepoint that took its own SQL back."""
        for key, cause, total, difference in made:
            given = {"namespace": key[0], "key": key[1], "total": total, "cause": cause}
            row = self._connection.execute(_BOOKING["book"], given).fetchone()
            if row is None or row[0] != difference:
                raise TotalMoved
