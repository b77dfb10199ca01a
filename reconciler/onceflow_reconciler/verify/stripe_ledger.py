"""Reads Stripe's event list into tables.

Rule: hours that were read as a whole before, and that hold what the ledger holds, are not read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from onceflow_reconciler.slices import Slice
from onceflow_reconciler.stripe_lists import EVENTS, NotBelieved, NotReadable, StripeLists, TooManyPages, not_readable
from onceflow_reconciler.verify.hours import HourSum, to_list
from onceflow_reconciler.verify.question import Question
from onceflow_reconciler.verify.tables import Tables
from onceflow_schemas.failure import Unavailable


class StripeLedger:
    """Asks Stripe for one question."""

    def __init__(self, question: Question, tables: Tables, lists: StripeLists) -> None:
        self._question = question
        self._tables = tables
        self._lists = lists

    def read(self, hours: Mapping[str, Mapping[int, HourSum]]) -> dict[str, Any]:
        """Ask for what is not proved by what was read before; return what was read of each account.

        Raises:
            Unavailable: ``stripe_not_readable``.
        """
        told: dict[str, Any] = {}
        question = self._question
        for account in self._lists.accounts:
            if question.account not in (None, account):
                continue
            try:
                now = self._lists.now(account)
                told[account] = self._ask_account(account, ours=hours.get(account, {}), now=now)
            except NotReadable as error:
                raise not_readable(error) from error
        return told

    def _ask_account(self, account: str, *, ours: Mapping[int, HourSum], now: int) -> dict[str, object]:
        question = self._question
        since = 0 if question.since is None else int(question.since.timestamp())
        until = now + 1 if question.until is None else int(question.until.timestamp())
        window = {"since": datetime.fromtimestamp(since, UTC), "until": datetime.fromtimestamp(until, UTC)}
        rows = self._tables.rows("read_hours", **{**window, "mode": question.rules.mode})
        read = {hour: HourSum(listed, id_hash) for named, hour, listed, id_hash in rows if named == account}
        plan = to_list(Slice(since, until), now=now, read=read, ours=ours, first_hour=min(ours, default=None))
        listed = 0
        for span in plan.spans:
            try:
                listed += self._list(account, span)
            except NotBelieved as error:
                self._tables.unexplained("list_unbelievable", f"{account}/{span.since}", error.why.detail)
                continue
            self._tables.run("add_span", account=account, since=span.since, until=span.until)
        settled = now - question.grace_seconds
        self._tables.run("judge_listed", settled=settled, listed_account=account)
        [(on_the_way,)] = self._tables.rows("count_on_the_way", settled=settled, listed_account=account)
        inside = {hour for hour in read if not any(span.since <= hour < span.until for span in plan.spans)}
        return {
            "listed_now": listed,
            "listed_before": sum(read[hour].events for hour in inside),
            "on_the_way": on_the_way,
            "beyond_30_days": plan.unreachable,
        }

    def _list(self, account: str, span: Slice) -> int:
        """Copy a stretch of Stripe's list; one with too many pages is cut."""
        work, listed = [span], 0
        while work:
            part = work.pop()
            try:
                events = [
                    (
                        account,
                        event.id,
                        datetime.fromtimestamp(event.created, UTC),
                        str(event.body.get("type", "")),
                    )
                    for page in self._lists.pages(account, EVENTS, part)
                    for event in page.items
                ]
            except TooManyPages:
                halves = part.halves()
                if halves is None:
                    raise Unavailable("stripe_not_readable", f"one second of {account} has too many events") from None
                work.extend(halves)
                continue
            with self._tables.copy("copy_listed") as copy:
                for event in events:
                    copy.write_row(event)
            listed += len(events)
        return listed
