"""One look at the event list of an account: what was missed is brought, and the cursor moves behind what was handed over.

Rule: the cursor moves only when each event of a stretch is known, on its way, or confirmed by the broker; a stretch that cannot
be believed or judged stays, and is read again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from psycopg import Connection

from onceflow_producer.failpoint import hit
from onceflow_reconciler.cursors import Cursor
from onceflow_reconciler.finding_store import Finding, record, remedied
from onceflow_reconciler.known_events import Backlog, BacklogTooLong, unknown_ids
from onceflow_reconciler.list_page import Listed
from onceflow_reconciler.republish import Republisher
from onceflow_reconciler.slices import Slice, SliceRules, ahead
from onceflow_reconciler.stripe_lists import EVENTS, Believed, NotReadable, StripeLists, TooManyPages
from onceflow_schemas.sql import queries
from onceflow_schemas.times import format_time

SOURCE: Final = "events"
WHO: Final = "reconciler"

_SQL = queries("reconcile")

log = structlog.get_logger("onceflow.reconciler")


@dataclass(slots=True)
class Told:
    """What one look did."""

    listed: int = 0
    missed: int = 0
    brought: int = 0
    waits: str | None = None


class EventCycle:
    """Looks at one account after the other.

    Args:
        connection: in autocommit.
        lists: of Stripe.
        backlog: of the event topics.
        republisher: None only looks (a dry run).
        mode: of the deployment.
        rules: how the list is cut.
        first_seconds: how far back the first look goes.
        check: raises when the lease is lost; called before each effect.
    """

    def __init__(
        self,
        connection: Connection[Any],
        lists: StripeLists,
        backlog: Backlog,
        *,
        republisher: Republisher | None,
        mode: str,
        rules: SliceRules,
        first_seconds: int,
        check: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._lists = lists
        self._backlog = backlog
        self._republisher = republisher
        self._mode = mode
        self._rules = rules
        self._first_seconds = first_seconds
        self._check = check

    def look(self, account: str) -> Told:
        """Read what is ahead of the account's cursor.

        Raises:
            LeaseLost, Failure, psycopg.Error: it goes on from the cursor next time.
        """
        told = Told()
        try:
            now = self._lists.now(account)
        except NotReadable as error:
            self._tell_not_readable(account, error)
            told.waits = "not_readable"
            return told
        lies_ahead = ahead(self._cursor(account).read(first=now - self._first_seconds), now=now, rules=self._rules)
        if lies_ahead.out_of_reach is not None:
            self._tell_out_of_reach(account, lies_ahead.out_of_reach)
        work = deque(lies_ahead.slices)
        while work and told.waits is None:
            part = work.popleft()
            told.waits = self._read(account, part, told, work)
        if told.waits is None:
            self._heal("account_not_readable", f"account {account}")
            self._heal("list_unbelievable", f"events of {account}")
        self._connection.execute(_SQL["healed_events"], {"account": account, "mode": self._mode})
        return told

    def _read(self, account: str, part: Slice, told: Told, work: deque[Slice]) -> str | None:
        """Hand a stretch over and move the cursor; why the account must wait, None when it need not."""
        try:
            self._hand_over(account, part, told)
        except TooManyPages:
            halves = part.halves()
            if halves is None:
                return "too_many_pages"
            work.extendleft(halves)
            return None
        except Believed as error:
            facts = {"why": error.why.code, "detail": error.why.detail}
            self._record([Finding("list_unbelievable", f"events of {account}", account, self._mode, facts)])
            return error.why.code
        except NotReadable as error:
            self._tell_not_readable(account, error)
            return "not_readable"
        except BacklogTooLong:
            return "backlog"
        self._move_cursor(account, part.until)
        return None

    def _hand_over(self, account: str, part: Slice, told: Told) -> None:
        for page in self._lists.pages(account, EVENTS, part):
            told.listed += len(page.items)
            missed = self._missed(account, page.items)
            told.missed += len(missed)
            if missed:
                self._bring(account, missed, told)

    def _missed(self, account: str, events: tuple[Listed, ...]) -> list[Listed]:
        """Return the events that are neither known nor on their way."""
        unknown = self._unknown(account, [event.id for event in events])
        if not unknown:
            return []
        waiting = self._backlog.among(set(unknown))
        # Asked again: what the processor has done while the topic was looked through is known by now.
        left = set(self._unknown(account, [one for one in unknown if one not in waiting]))
        return [event for event in events if event.id in left]

    def _unknown(self, account: str, event_ids: list[str]) -> list[str]:
        return unknown_ids(self._connection, account=account, mode=self._mode, event_ids=event_ids)

    def _bring(self, account: str, missed: list[Listed], told: Told) -> None:
        found = [
            Finding(
                "missed_event",
                f"event {account}/{self._mode}/{event.id}",
                account,
                self._mode,
                {"event_id": event.id, "type": str(event.body.get("type", "")), "created": event.created},
            )
            for event in missed
        ]
        ids = self._record(found)
        if self._republisher is None:
            return
        self._check()
        hit("reconciler.before_publish")
        self._republisher.publish(account, missed)
        remedied(self._connection, ids, action="republish", who=WHO, result="confirmed by the broker")
        told.brought += len(missed)
        log.info("missed_events_brought", account=account, events=len(missed))

    def _cursor(self, account: str) -> Cursor:
        return Cursor(self._connection, account=account, mode=self._mode, source=SOURCE)

    def _move_cursor(self, account: str, until: int) -> None:
        if self._republisher is not None:
            self._check()
            self._cursor(account).move(until)

    def _tell_not_readable(self, account: str, error: NotReadable) -> None:
        facts = {"status": error.status, "detail": error.detail, "permission": error.permission}
        self._record([Finding("account_not_readable", f"account {account}", account, self._mode, facts)])

    def _tell_out_of_reach(self, account: str, lost: Slice) -> None:
        facts = {
            "since": format_time(datetime.fromtimestamp(lost.since, UTC)),
            "until": format_time(datetime.fromtimestamp(lost.until, UTC)),
        }
        self._record(
            [Finding("events_out_of_reach", f"events of {account} since {facts['since']}", account, self._mode, facts)]
        )

    def _record(self, findings: list[Finding]) -> list[int]:
        self._check()
        with self._connection.transaction():
            return record(self._connection, findings)

    def _heal(self, kind: str, subject: str) -> None:
        self._connection.execute(_SQL["gone"], {"kinds": [kind], "subject": subject})
