"""One look at an account: its events, then the objects of its operations.

Rule: what cannot be read or believed is a finding of that account; the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from psycopg import Connection

from onceflow_reconciler.cursors import Cursor
from onceflow_reconciler.endpoint_checks import KINDS, judge_backlog, judge_clocks, judge_endpoints
from onceflow_reconciler.event_cycle import EventCycle, Told
from onceflow_reconciler.finding import Finding
from onceflow_reconciler.finding_store import record
from onceflow_reconciler.list_page import Unbelievable
from onceflow_reconciler.object_cycle import LISTS, Compared, ObjectCycle
from onceflow_reconciler.stripe_lists import (
    EVENTS,
    WEBHOOK_ENDPOINTS,
    NotBelieved,
    NotReadable,
    StripeList,
    StripeLists,
    TooManyPages,
)
from onceflow_schemas.sql import queries

LOOKS_PER_ENDPOINTS: Final = 10
"""So seldom the webhook endpoints are read: nobody changes them every minute."""

LIST_KINDS: Final = ("account_not_readable", "list_unbelievable")
TOO_MANY: Final = Unbelievable("too_many_pages", "one second of the list has more pages than are read in one go")

_SQL = queries("reconcile")

log = structlog.get_logger("onceflow.reconciler")


@dataclass(slots=True)
class Looked:
    """What one look did; ``waits`` says why the account waits."""

    events: Told = field(default_factory=Told)
    objects: Compared = field(default_factory=Compared)
    waits: str | None = None

    @property
    def is_clean(self) -> bool:
        """Whether everything agrees, or was healed."""
        return self.waits is None and self.events.missed == self.events.brought and not self.objects.drifts


@dataclass(frozen=True, slots=True)
class _Kept:
    """What kept us from a list; ``is_all`` says that it keeps us from the account's other lists as well."""

    waits: str
    finding: Finding
    is_all: bool


class AccountCycle:
    """Looks at one account after the other.

    Args:
        connection: in autocommit.
        lists: of Stripe.
        events, objects: what is looked at.
        mode: of the deployment.
        check: raises when the lease is lost.
        dry_run: writes nothing.
    """

    def __init__(
        self,
        connection: Connection[Any],
        lists: StripeLists,
        *,
        events: EventCycle,
        objects: ObjectCycle,
        mode: str,
        check: Callable[[], None],
        dry_run: bool,
    ) -> None:
        self._connection = connection
        self._lists = lists
        self._events = events
        self._objects = objects
        self._mode = mode
        self._check = check
        self._dry_run = dry_run
        self._looks: dict[str, int] = {}

    def look(self, account: str) -> Looked:
        """Look once: a list that cannot be read or believed does not keep us from the next one.

        Raises:
            LeaseLost, Failure, psycopg.Error: it goes on from the cursors next time.
        """
        looked = Looked()
        now: int | None = None
        for of, step in self._steps(account, looked):
            try:
                if now is None:
                    now = self._lists.now(account)
                    self._look_at_times(account, now)
                step(now)
            except (NotBelieved, NotReadable, TooManyPages) as error:
                kept = self._told(account, of, error)
                looked.waits = looked.waits or kept.waits
                self._record(kept.finding)
                if kept.is_all:
                    break
            else:
                for kind in LIST_KINDS:
                    self._gone(kind, f"{of.path} of {account}")
        if looked.waits is None:
            self._gone("reconcile_behind", f"events of {account}")
        return looked

    def _steps(self, account: str, looked: Looked) -> list[tuple[StripeList, Callable[[int], None]]]:
        """Return what is looked at in which list; each is given the time at Stripe."""

        def events(now: int) -> None:
            looked.waits = self._events.look(account, now=now, told=looked.events)

        def objects(of: StripeList) -> Callable[[int], None]:
            return lambda now: self._objects.look(account, of, now=now, told=looked.objects)

        steps = [(EVENTS, events), *((of, objects(of)) for of in LISTS)]
        if self._endpoints_due(account):
            steps.append((WEBHOOK_ENDPOINTS, lambda _: self._look_at_endpoints(account)))
        return steps

    def _told(self, account: str, of: StripeList, error: NotBelieved | NotReadable | TooManyPages) -> _Kept:
        subject = f"{of.path} of {account}"
        if isinstance(error, NotReadable):
            facts = {"status": error.status, "detail": error.detail, "permission": error.permission}
            finding = Finding("account_not_readable", subject, account, self._mode, facts)
            # Only a missing permission is one of a list; whatever else keeps us away keeps us from the others too.
            return _Kept("not_readable", finding, is_all=not error.permission)
        why = error.why if isinstance(error, NotBelieved) else TOO_MANY
        facts = {"why": why.code, "detail": why.detail}
        return _Kept(why.code, Finding("list_unbelievable", subject, account, self._mode, facts), is_all=False)

    def _look_at_times(self, account: str, now: int) -> None:
        """Clocks, and how far the list was read."""
        if self._dry_run:
            return
        [(database_now,)] = self._connection.execute(_SQL["now"]).fetchall()
        self._replace(
            judge_clocks(stripe_now=now, own_now=time.time(), database_now=database_now), kinds=["clock_skew"]
        )
        cursor = Cursor(self._connection, account=account, mode=self._mode, source=EVENTS.kind + "s")
        behind = judge_backlog(cursor.read(first=now), now=now, account=account, mode=self._mode)
        if behind is not None:
            self._record(behind)

    def _endpoints_due(self, account: str) -> bool:
        looks = self._looks.get(account, 0)
        self._looks[account] = looks + 1
        return not self._dry_run and looks % LOOKS_PER_ENDPOINTS == 0

    def _look_at_endpoints(self, account: str) -> None:
        endpoints = self._lists.all_of(account, WEBHOOK_ENDPOINTS)
        rows = self._connection.execute(_SQL["missed_types"], {"account": account, "mode": self._mode}).fetchall()
        missed = {event_type: refused for event_type, refused in rows}  # noqa: C416 - typed rows become a dictionary
        found = judge_endpoints(endpoints, missed_types=missed, account=account, mode=self._mode)
        self._replace(found, kinds=KINDS, account=account)

    def _replace(self, findings: Sequence[Finding], *, kinds: Sequence[str], account: str | None = None) -> None:
        """Write what is found now; what was found of these kinds before and is not any more is healed."""
        self._check()
        with self._connection.transaction():
            record(self._connection, findings)
            given = {"kinds": list(kinds), "account": account, "subjects": [one.subject for one in findings]}
            self._connection.execute(_SQL["gone_beside"], given)

    def _gone(self, kind: str, subject: str) -> None:
        if not self._dry_run:
            self._connection.execute(_SQL["gone"], {"kinds": [kind], "subject": subject})

    def _record(self, finding: Finding) -> None:
        if self._dry_run:
            return
        self._check()
        with self._connection.transaction():
            record(self._connection, [finding])
