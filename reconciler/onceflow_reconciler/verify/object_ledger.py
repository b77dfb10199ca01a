"""Compares the objects at Stripe that are effects of operations with the operations, one by one.

Rule: what an operation that is still open does not know yet is no difference: its workers settle it by what they see.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from psycopg import Connection

from onceflow_reconciler.compare_objects import ENDED, compare_object, object_subject, operation_id_of
from onceflow_reconciler.known_operations import known_operations
from onceflow_reconciler.list_page import Page
from onceflow_reconciler.slices import REACH_SECONDS, Slice
from onceflow_reconciler.stripe_lists import (
    PAYMENT_INTENTS,
    REFUNDS,
    NotBelieved,
    NotReadable,
    StripeList,
    StripeLists,
    TooManyPages,
    not_readable,
)
from onceflow_reconciler.verify.hours import HOUR_SECONDS, HourSum
from onceflow_reconciler.verify.object_proof import CLOCKS_SECONDS, Compared, compared, listed_since
from onceflow_reconciler.verify.question import Question
from onceflow_reconciler.verify.tables import Tables

LISTS: Final = (PAYMENT_INTENTS, REFUNDS)


@dataclass(slots=True)
class _Seen:
    due_since: float
    """Since then what was made at Stripe may have its reason in an event that is not yet due."""
    objects: int = 0
    ours: int = 0
    on_the_way: int = 0
    without_due: int = 0
    """Without an operation, and made since then: as after a restore."""
    drifts: dict[str, tuple[str, str]] = field(default_factory=dict)


class ObjectLedger:
    """Looks at one account after the other, for one question."""

    def __init__(self, connection: Connection[Any], question: Question, *, tables: Tables, lists: StripeLists) -> None:
        self._connection = connection
        self._question = question
        self._tables = tables
        self._lists = lists
        self.compared: dict[str, dict[str, Any]] = {}
        """What a proof may say, by account: of which all was listed."""

    def read(self, hours: Mapping[str, Mapping[int, HourSum]], *, accounts: Sequence[str]) -> dict[str, dict[str, int]]:
        """List the objects of the window, at most those of 30 days, but for what an earlier proof has compared; return what was seen.

        Args:
            hours: what the ledgers have, by account and hour.
            accounts: that can be read.

        Raises:
            Unavailable: ``stripe_not_readable``: Stripe does not answer, or refuses us the objects of the only account.
        """
        told: dict[str, dict[str, int]] = {}
        for account in accounts:
            first_hour = min(hours.get(account, {}), default=None)
            told[account] = self._look(account, first_hour=first_hour, is_alone=len(accounts) == 1)
        return told

    def _look(self, account: str, *, first_hour: int | None, is_alone: bool) -> dict[str, int]:
        question, now = self._question, self._lists.now(account)
        [(first_operation,)] = self._tables.rows("first_operation", listed_account=account)
        begins = [one for one in (first_hour, first_operation) if one is not None]
        until = now - question.grace_seconds
        if question.until is not None:
            until = min(until, int(question.until.timestamp()))
        if question.since is None:
            # Nothing of ours is older: the edge, in which nothing is looked for, lies before all of it.
            since = min(begins, default=until) - 2 * CLOCKS_SECONDS
        else:
            since = int(question.since.timestamp())
        # Operations may wait for as long as objects are looked for before they make one.
        since = max(since, now - REACH_SECONDS)
        hours_since = (since - REACH_SECONDS) // HOUR_SECONDS * HOUR_SECONDS
        hours = {
            hour: HourSum(operations, hashed)
            for hour, operations, hashed in self._tables.rows(
                "operation_hours", listed_account=account, hours_since=hours_since
            )
        }
        before = Compared.before(question.former, account)
        whole, seen = Slice(since, until), _Seen(self._due_since(account))
        window = Slice(listed_since(whole, before, hours, hours_since=hours_since), until)
        is_whole = window.since < window.until
        if is_whole:
            for of in LISTS:
                try:
                    is_whole = self._list(account, of, window, seen) and is_whole
                except NotReadable as error:
                    if is_alone or not error.is_refused:
                        raise not_readable(error) from error
                    self._tables.unexplained("account_not_readable", f"{of.path} of {account}", error.detail)
                    is_whole = False
        # What waits for its operation is not compared yet: a later proof must list it again.
        done = compared(whole, before, hours) if is_whole and not seen.without_due else None
        if done is not None:
            self.compared[account] = done.as_json()
        for subject, (kind, why) in seen.drifts.items():
            self._tables.unexplained(kind, subject, why)
        return {
            "objects": seen.objects,
            "of_operations": seen.ours,
            "objects_on_the_way": seen.on_the_way + seen.without_due,
        }

    def _list(self, account: str, of: StripeList, window: Slice, seen: _Seen) -> bool:
        """Judge a list; tell whether all of it was read."""
        work = [window]
        while work:
            part = work.pop()
            try:
                for page in self._lists.pages(account, of, part):
                    self._judge(account, page, seen)
            except TooManyPages:
                halves = part.halves()
                if halves is None:
                    raise not_readable(NotReadable(account, None, "one second has too many objects")) from None
                work.extend(halves)
            except NotBelieved as error:
                self._tables.unexplained("list_unbelievable", f"{of.path} of {account}", error.why.detail)
                return False
        edges = {"listed_since": window.since + CLOCKS_SECONDS, "listed_until": window.until - CLOCKS_SECONDS}
        self._tables.run("judge_not_listed", listed_account=account, path=of.path, **edges)
        return True

    def _judge(self, account: str, page: Page, seen: _Seen) -> None:
        named = [(item, found) for item in page.items if (found := operation_id_of(item.body)) is not None]
        known = known_operations(self._connection, [found for _, found in named])
        seen.objects += len(page.items)
        seen.ours += len(named)
        self._tables.run("add_objects", object_ids=[item.id for item, _ in named])
        for item, found in named:
            drift = compare_object(item.body, known.get(found), deployment=self._question.rules.deployment)
            if drift is None:
                continue
            if drift.verdict == "object_without_operation" and item.created >= seen.due_since:
                seen.without_due += 1
                continue
            if drift.verdict == "operation_behind" and drift.state not in ENDED:
                seen.on_the_way += 1
                continue
            seen.drifts[object_subject(account, self._question.rules.mode, item.id)] = (drift.verdict, drift.why)

    def _due_since(self, account: str) -> float:
        """Return since when what was made at Stripe may have its reason in an event that is not yet due, by Stripe's clock."""
        [(since,)] = self._tables.rows("not_yet_due_since", listed_account=account)
        return math.inf if since is None else since
