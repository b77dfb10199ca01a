"""Runs again what was processed, chunk by chunk: a look, or revisions with the run's row in the same transaction.

Rule: whatever goes wrong costs one event or a rerun of the chunk, never a half of an event.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg import Connection
from psycopg.pq import TransactionStatus

from onceflow_processor.admission import Fault, Item
from onceflow_processor.database import first_line
from onceflow_processor.deadline import Deadline
from onceflow_processor.handler_failure import ConnectionLost, CutBefore, HandlerFailed
from onceflow_processor.replay.rerun_attempt import OutcomesGone, RerunAttempt, RerunRules
from onceflow_processor.replay.rerun_handlers import TotalMoved
from onceflow_processor.replay.rerun_report import EventRerun, RerunReport
from onceflow_processor.replay.runs import Progress
from onceflow_processor.replay.surroundings import Surroundings
from onceflow_processor.sqlstates import Meaning, meaning_of
from onceflow_processor.tail import NotCommitted
from onceflow_schemas.failure import LeaseLost, Unavailable
from onceflow_schemas.identity import Identity

EVENTS_MAX: Final = 50
"""Events of one transaction: their handlers hold their rows until its end."""
TRIES_MAX: Final = 10
"""Tries of one chunk for faults of the moment."""
WAIT_SECONDS_MAX: Final = 0.5
SEEN_MAX: Final = 100_000
"""Events of which the run remembers that they are done, the latest ones: a copy that comes later still counts twice.  So it is
with new operations, of which it remembers that they were told."""


class RerunDoer:
    """Runs events whose marker says processed.

    Args:
        surroundings: connection, settings and limits.
        execute: False for a look.
        allow_operations: new operations may be asked for.
    """

    def __init__(self, surroundings: Surroundings, *, execute: bool, allow_operations: bool) -> None:
        self._around = surroundings
        given = surroundings.settings.attempt
        self._settings = replace(given, run=replace(given.run, handlers=given.handlers.for_replay()))
        self._rules = RerunRules(execute=execute, allow_operations=allow_operations, handlers=given.handlers)
        self._deadline = Deadline(surroundings.handler_deadline_seconds)
        self._reader: Connection[Any] | None = None
        self._faults: dict[Identity, Fault] = {}
        self._seen: dict[Identity, None] = {}
        self._told: dict[UUID, None] = {}
        self.report = RerunReport()

    def do(self, items: Sequence[Item], progress: Progress) -> str | None:
        """Run items of one partition in their order; why it cannot go on now, None when it can.

        Raises:
            LeaseLost: another process goes on with the run.
            Unavailable: the database is away, or its faults do not pass.
        """
        parts = [items[start : start + EVENTS_MAX] for start in range(0, len(items), EVENTS_MAX)]
        parts.reverse()
        while parts and not self._around.stopping():
            part = parts.pop()
            rest = self._settle(part, progress)
            if isinstance(rest, str):
                return rest
            parts.extend(reversed(rest))
        return None

    def _settle(self, part: Sequence[Item], progress: Progress) -> list[Sequence[Item]] | str:
        """Run one part until it is done, or return smaller ones, or why it cannot go on."""
        for tries in range(TRIES_MAX + len(part)):
            try:
                found = self._attempt(progress.run_id).run(part, lambda found: self._note(part, progress, found))
            except HandlerFailed as failure:
                self._leave_out(failure.item, failure.fault)
                self._recover(spoiled=failure.spoils)
            except CutBefore as cut:
                self._recover(spoiled=False)
                place = next(number for number, item in enumerate(part) if item is cut.item)
                return [part[:place], part[place:]]
            except (psycopg.Error, NotCommitted, TotalMoved, OutcomesGone, ConnectionLost) as error:
                rest = self._after_error(error, part)
                if rest is not None:
                    return rest
                self._around.wait(random.uniform(0, min(WAIT_SECONDS_MAX, 0.01 * 2**tries)))  # noqa: S311
            else:
                progress.committed(part[-1].record.offset + 1)
                for one in found:
                    self.report.add(one)
                self._remember(found)
                return []
        raise Unavailable("database_unavailable", "a part of the rerun met too many passing faults")

    def _attempt(self, run_id: int | None) -> RerunAttempt:
        if self._reader is None or self._reader.closed:
            self._reader = self._around.open_database()
            self._reader.autocommit = True
        return RerunAttempt(
            self._around.connection,
            self._reader,
            settings=self._settings,
            rules=self._rules,
            deadline=self._deadline,
            faults=self._faults,
            seen=self._seen,
            told=self._told,
            run_id=run_id,
        )

    def _remember(self, found: Sequence[EventRerun]) -> None:
        self._seen.update((one.identity, None) for one in found if one.passed_over != "repeat")
        self._told.update((asked.id, None) for one in found for kind, asked in one.operations if kind == "new")
        _forget_first(self._seen)
        _forget_first(self._told)

    def _note(self, part: Sequence[Item], progress: Progress, found: Sequence[EventRerun]) -> None:
        counts: Counter[str] = Counter()
        for one in found:
            counts.update(one.counts())
        progress.note(self._around.connection, part, counts=counts)

    def _after_error(self, error: Exception, part: Sequence[Item]) -> list[Sequence[Item]] | str | None:
        meaning = meaning_of(error)
        connection_gone = isinstance(error, ConnectionLost) or self._around.connection.closed
        if meaning is Meaning.AWAY or connection_gone:
            raise Unavailable("database_unavailable", first_line(error)) from error
        self._recover(spoiled=False)
        if meaning is Meaning.FENCED:
            raise LeaseLost("fenced", "another process goes on with this replay") from error
        if meaning is Meaning.LANE:
            return "a lane hands out no sequence: `onceflow lanes show`"
        if meaning not in (Meaning.DATA, Meaning.GUARD) or isinstance(error, psycopg.errors.UniqueViolation):
            return None
        if len(part) > 1:
            return [[item] for item in part]
        code = "handler_broke_transaction" if meaning is Meaning.GUARD else "effect_refused"
        self._leave_out(part[0], Fault(code, first_line(error)))
        return None

    def _leave_out(self, item: Item, fault: Fault) -> None:
        assert item.event is not None, "only trusted records run"
        self._faults[item.event.identity] = fault

    def _recover(self, *, spoiled: bool) -> None:
        """Have an idle connection again."""
        connection = self._around.connection
        if not spoiled and not connection.closed:
            if connection.info.transaction_status != TransactionStatus.IDLE:
                connection.rollback()
            return
        if not connection.closed:
            # The query that a stopped handler left behind would hold its locks until it ends by itself.
            connection.cancel_safe(timeout=WAIT_SECONDS_MAX)
        self._around.reconnect()


def _forget_first(remembered: dict[Any, None]) -> None:
    while len(remembered) > SEEN_MAX:
        del remembered[next(iter(remembered))]
