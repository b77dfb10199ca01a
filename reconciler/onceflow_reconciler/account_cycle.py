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
from onceflow_reconciler.event_cycle import SOURCE, EventCycle, Told
from onceflow_reconciler.finding import Finding
from onceflow_reconciler.finding_store import record
from onceflow_reconciler.object_cycle import Compared, ObjectCycle
from onceflow_reconciler.stripe_lists import (
    WEBHOOK_ENDPOINTS,
    NotBelieved,
    NotReadable,
    StripeLists,
    TooManyPages,
)
from onceflow_schemas.sql import queries

LOOKS_PER_ENDPOINTS: Final = 10
"""So seldom the webhook endpoints are read: nobody changes them every minute."""

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
        """Look once.

        Raises:
            LeaseLost, Failure, psycopg.Error: it goes on from the cursors next time.
        """
        looked = Looked()
        try:
            now = self._lists.now(account)
            self._look_at_surroundings(account, now)
            looked.waits = self._events.look(account, now=now, told=looked.events)
            self._objects.look(account, now=now, told=looked.objects)
        except NotBelieved as error:
            looked.waits = error.why.code
            facts = {"why": error.why.code, "detail": error.why.detail}
            self._record(Finding("list_unbelievable", f"lists of {account}", account, self._mode, facts))
        except NotReadable as error:
            looked.waits = "not_readable"
            lacks = {"status": error.status, "detail": error.detail, "permission": error.permission}
            self._record(Finding("account_not_readable", f"account {account}", account, self._mode, lacks))
            # The days go on while nothing can be read: this is when the alarm matters most.
            self._judge_backlog(account, self._lists.last_heard())
        except TooManyPages:
            looked.waits = "too_many_pages"
        else:
            self._gone("reconcile_behind", f"events of {account}")
            self._gone("list_unbelievable", f"lists of {account}")
            self._gone("account_not_readable", f"account {account}")
        return looked

    def _look_at_surroundings(self, account: str, now: int) -> None:
        """Clocks, how far the list was read, and now and then the webhook endpoints."""
        if self._dry_run:
            return
        [(database_now,)] = self._connection.execute(_SQL["now"]).fetchall()
        self._replace(
            judge_clocks(stripe_now=now, own_now=time.time(), database_now=database_now), kinds=["clock_skew"]
        )
        self._judge_backlog(account, now)
        if self._looks.get(account, 0) % LOOKS_PER_ENDPOINTS == 0:
            endpoints = self._lists.all_of(account, WEBHOOK_ENDPOINTS)
            rows = self._connection.execute(_SQL["missed_types"], {"account": account, "mode": self._mode}).fetchall()
            missed = {event_type for (event_type,) in rows}
            found = judge_endpoints(endpoints, missed_types=missed, account=account, mode=self._mode)
            self._replace(found, kinds=KINDS, account=account)
        self._looks[account] = self._looks.get(account, 0) + 1

    def _judge_backlog(self, account: str, now: int) -> None:
        cursor = Cursor(self._connection, account=account, mode=self._mode, source=SOURCE)
        behind = judge_backlog(cursor.read(first=now), now=now, account=account, mode=self._mode)
        if behind is not None:
            self._record(behind)

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
