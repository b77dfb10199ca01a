"""Now and then a look at the last hours of topics and tables, as ``onceflow verify`` takes it of all.

Rule: it reads beside the lease's connection, in a thread, and renews the lease meanwhile; a ledger that cannot be read is a finding, and
keeps nobody from bringing events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any, Final

import structlog
from psycopg import Connection

from onceflow_reconciler.cursors import Cursor
from onceflow_reconciler.finding import Finding
from onceflow_reconciler.finding_store import record
from onceflow_reconciler.ledger_findings import keep, oldest
from onceflow_reconciler.verify.proving import Proving
from onceflow_reconciler.verify.question import Answer, Question
from onceflow_schemas.failure import Failure, LeaseLost
from onceflow_schemas.sql import queries

SOURCE: Final = "ledgers"
OVERLAP: Final = timedelta(hours=1)
AGAIN: Final = timedelta(days=2)
"""So far back a look goes for findings that are open; older ones are healed by ``onceflow verify --findings``."""
TICK_SECONDS: Final = 0.5
CANCEL_SECONDS_MAX: Final = 5.0
NOT_READABLE: Final = Finding("ledgers_not_readable", "ledgers")

_SQL = queries("reconcile")

log = structlog.get_logger("onceflow.reconciler")


class LedgerLook:
    """Looks when it is time.

    Args:
        connection: in autocommit.
        question: about everything.
        open_connection: makes another one in autocommit.
        period_seconds: from one look to the next.
        first_seconds: how far back the first look goes.
        check: renews the lease; raises when it is lost.
    """

    def __init__(
        self,
        connection: Connection[Any],
        question: Question,
        *,
        open_connection: Callable[[], Connection[Any]],
        period_seconds: float,
        first_seconds: int,
        check: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._question = question
        self._open_connection = open_connection
        self._period = timedelta(seconds=period_seconds)
        self._first = timedelta(seconds=first_seconds)
        self._check = check

    def look(self) -> int:
        """Look, when the last look is long enough ago; return how much was found.

        Raises:
            LeaseLost, psycopg.Error: another time.
        """
        cursor = Cursor(self._connection, account="", mode=self._question.rules.mode, source=SOURCE)
        now = datetime.now(UTC)
        done_until = datetime.fromtimestamp(cursor.read(first=int((now - self._first).timestamp())), UTC)
        if now - done_until < self._period:
            return 0
        since = done_until - OVERLAP
        wider = oldest(self._connection)
        if wider is not None and wider < since:
            since = max(wider, now - AGAIN)
        try:
            found = self._compare(since)
        except LeaseLost:
            raise
        except Failure as error:
            log.warning("ledgers_not_readable", code=error.code, reason=str(error))
            self._check()
            facts = {"code": error.code, "detail": str(error)}
            record(self._connection, [replace(NOT_READABLE, facts=facts)])
            return 1
        self._check()
        given = {"kinds": [NOT_READABLE.kind], "subject": NOT_READABLE.subject}
        self._connection.execute(_SQL["gone"], given)
        cursor.move(int(now.timestamp()))
        return found

    def _compare(self, since: datetime) -> int:
        question = replace(self._question, since=since)
        with self._open_connection() as tables, self._open_connection() as beside:
            given_up = Event()

            def tell(_: int) -> None:
                if given_up.is_set():
                    raise LeaseLost("fenced", "the look was given up")

            def look() -> Answer:
                with tables.transaction(force_rollback=True):
                    return Proving(tables, question, beside=beside, lists=None, tell=tell).answer()

            with ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger-look") as thread:
                answer = self._wait_for(thread.submit(look), given_up, using=(tables, beside))
            self._check()
            found = keep(self._connection, answer, mode=question.rules.mode, since=since, is_whole=False)
        if found:
            log.warning("ledgers_disagree", findings=found, since=since.isoformat())
        return found

    def _wait_for(self, looking: Future[Answer], given_up: Event, *, using: Sequence[Connection[Any]]) -> Answer:
        """Wait for what looks in another thread, and renew the lease meanwhile: one statement may take longer than a lease."""
        try:
            while not wait([looking], timeout=TICK_SECONDS).done:
                self._check()
        except BaseException:
            given_up.set()
            # A statement may begin just after another one was cancelled; what is read between them ends by itself.
            while not wait([looking], timeout=TICK_SECONDS).done:
                for connection in using:
                    connection.cancel_safe(timeout=CANCEL_SECONDS_MAX)
            raise
        return looking.result()
