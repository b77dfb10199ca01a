"""One look at the objects of an account that may be effects of operations: intents and refunds, by the time they were made.

Rule: nothing is changed here but findings and hints: an operation that is behind is looked at by its workers, who settle it by what
they see themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import structlog
from psycopg import Connection

from onceflow_processor.arrays import Texts, Uuids
from onceflow_producer.failpoint import hit
from onceflow_reconciler.compare_objects import Drift, compare_object, object_subject, operation_id_of
from onceflow_reconciler.cursors import Cursor
from onceflow_reconciler.finding import Finding
from onceflow_reconciler.finding_store import record, remedied
from onceflow_reconciler.known_operations import known_operations
from onceflow_reconciler.list_page import Listed
from onceflow_reconciler.slices import Slice, SliceRules, ahead
from onceflow_reconciler.stripe_lists import PAYMENT_INTENTS, REFUNDS, StripeList, StripeLists, TooManyPages
from onceflow_schemas.sql import queries

WHO: Final = "reconciler"
LISTS: Final = (PAYMENT_INTENTS, REFUNDS)
AGAIN: Final = "refund_again"
RETURNED_SECONDS: Final = 35 * 24 * 3600
"""A bank returns a refund within about 30 days."""
AGAIN_STEP_SECONDS: Final = 3600
HEALED_BY_LOOK: Final = ("object_without_operation", "operation_doubled", "operation_disagrees")
OPEN_LOOKS_MAX: Final = 5
"""Objects of open findings that one look reads; the one that was read longest ago comes first."""

_SQL = queries("reconcile")

log = structlog.get_logger("onceflow.reconciler")


@dataclass(slots=True)
class Compared:
    """What one look did."""

    objects: int = 0
    drifts: int = 0
    hints: int = 0


class ObjectCycle:
    """Looks at one account after the other.

    Args:
        connection: in autocommit.
        lists: of Stripe.
        deployment: ours.
        mode: of the deployment.
        rules: how lists are cut.
        first_seconds: how far back the first look goes.
        check: raises when the lease is lost.
        dry_run: writes nothing.
    """

    def __init__(
        self,
        connection: Connection[Any],
        lists: StripeLists,
        *,
        deployment: str,
        mode: str,
        rules: SliceRules,
        first_seconds: int,
        check: Callable[[], None],
        dry_run: bool,
    ) -> None:
        self._connection = connection
        self._lists = lists
        self._deployment = deployment
        self._mode = mode
        self._rules = rules
        self._first_seconds = first_seconds
        self._check = check
        self._dry_run = dry_run
        self._derived_before = 0

    def look(self, account: str, of: StripeList, *, now: int, told: Compared) -> None:
        """Compare what was made since the last look, and look again at what disagreed.

        Raises:
            NotReadable, NotBelieved, TooManyPages: nothing can be said of the list; its cursor stays.
            LeaseLost, psycopg.Error: it goes on from the cursor next time.
        """
        self._derived_before = self._out_of_reach(account)
        self._look_from(account, of, source=of.kind, now=now, told=told)
        if of is REFUNDS:
            # A bank may return a refund weeks after it succeeded; its event may be one that nobody has brought.
            again = now - RETURNED_SECONDS
            if again - self._cursor(account, AGAIN).read(first=again - AGAIN_STEP_SECONDS) >= AGAIN_STEP_SECONDS:
                self._look_from(account, of, source=AGAIN, now=again, told=told)
        if not self._dry_run:
            self._look_at_open(account, of, told)
            self._connection.execute(_SQL["healed_operations"])

    def _look_from(self, account: str, of: StripeList, *, source: str, now: int, told: Compared) -> None:
        cursor = self._cursor(account, source)
        done_until = cursor.read(first=now - self._first_seconds)
        work = deque(ahead(done_until, now=now, rules=self._rules, is_endless=True).slices)
        while work:
            part = work.popleft()
            try:
                self._compare(account, of, part, told)
            except TooManyPages:
                halves = part.halves()
                if halves is None:
                    raise
                work.extendleft(halves)
                continue
            if not self._dry_run:
                self._check()
                cursor.move(part.until)

    def _cursor(self, account: str, source: str) -> Cursor:
        return Cursor(self._connection, account=account, mode=self._mode, source=source)

    def _look_at_open(self, account: str, of: StripeList, told: Compared) -> None:
        """Some findings at a time: an object that agrees by now is none any more."""
        given = {"kinds": list(HEALED_BY_LOOK), "account": account, "mode": self._mode, "object": of.kind}
        rows = self._connection.execute(_SQL["open_objects"], {**given, "rows_max": OPEN_LOOKS_MAX}).fetchall()
        for (object_id,) in rows:
            item = self._lists.one(account, of, object_id)
            if item is None:
                self._connection.execute(_SQL["looked_at"], {**given, "object_id": object_id})
                continue
            found = operation_id_of(item.body)
            drift = (
                None
                if found is None
                else compare_object(
                    item.body, known_operations(self._connection, [found]).get(found), deployment=self._deployment
                )
            )
            self._check()
            if found is not None and drift is not None:
                told.hints += self._write(account, [(item, found, drift)])
            kept = [] if drift is None else [drift.verdict]
            self._connection.execute(
                _SQL["gone_object"], {**given, "subject": object_subject(account, self._mode, item.id), "kept": kept}
            )

    def _out_of_reach(self, account: str) -> int:
        """Return until when, in unix seconds, events of the account are out of reach; 0 where none are."""
        given = {"account": account, "mode": self._mode}
        [(until,)] = self._connection.execute(_SQL["out_of_reach_until"], given).fetchall()
        return int(until)

    def _compare(self, account: str, of: StripeList, part: Slice, told: Compared) -> None:
        for page in self._lists.pages(account, of, part):
            told.objects += len(page.items)
            named = [(item, found) for item in page.items if (found := operation_id_of(item.body)) is not None]
            known = known_operations(self._connection, [found for _, found in named])
            drifts = [
                (item, found, drift)
                for item, found in named
                if (drift := compare_object(item.body, known.get(found), deployment=self._deployment)) is not None
            ]
            told.drifts += len(drifts)
            if drifts and not self._dry_run:
                self._check()
                told.hints += self._write(account, drifts)

    def _write(self, account: str, drifts: Sequence[tuple[Listed, UUID, Drift]]) -> int:
        findings = [
            _finding(account, self._mode, item, operation_id, drift, is_derived=item.created < self._derived_before)
            for item, operation_id, drift in drifts
        ]
        behind = [(item, found) for item, found, drift in drifts if drift.verdict == "operation_behind"]
        with self._connection.transaction():
            ids = record(self._connection, findings)
            hinted: set[str] = set()
            if behind:
                rows = self._connection.execute(
                    _SQL["hint"],
                    {
                        "ids": Uuids(found for _, found in behind),
                        "events": Texts(f"list/{item.id}/{item.body.get('status')}" for item, _ in behind),
                        "objects": Texts(str(item.body.get("object")) for item, _ in behind),
                        "object_ids": Texts(item.id for item, _ in behind),
                        "statuses": Texts(str(item.body.get("status")) for item, _ in behind),
                        "createds": [datetime.fromtimestamp(item.created, UTC) for item, _ in behind],
                    },
                ).fetchall()
                # The overlap of two looks shows an object again: a hint that waits already is not given, or told, once more.
                hinted = {object_id for (object_id,) in rows}
                looked = [number for number, (item, _, _) in zip(ids, drifts, strict=True) if item.id in hinted]
                remedied(
                    self._connection, looked, action="look", who=WHO, result="the operation is looked up by its workers"
                )
            hit("reconciler.in_look")
        log.warning("objects_disagree", account=account, findings=len(findings))
        return len(hinted)


def _finding(account: str, mode: str, item: Listed, operation_id: UUID, drift: Drift, *, is_derived: bool) -> Finding:
    amount, currency = item.body.get("amount"), item.body.get("currency")
    facts: dict[str, Any] = {
        "operation_id": str(operation_id),
        "object": str(item.body.get("object")),
        "object_id": item.id,
        "status": str(item.body.get("status")),
        "why": drift.why,
        "operation_state": drift.state,
    }
    if is_derived:
        # Its events cannot be listed any more: what is known comes from the object alone.
        facts["derived"] = True
    return Finding(
        drift.verdict,
        object_subject(account, mode, item.id),
        account,
        mode,
        facts,
        amount if isinstance(amount, int) else None,
        currency if isinstance(currency, str) else None,
    )
