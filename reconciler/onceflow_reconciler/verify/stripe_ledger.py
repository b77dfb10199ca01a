"""Reads Stripe's event list into tables.

Rule: hours that were read as a whole before, late enough, and that hold what the ledger holds, are not read again; what Stripe does
not list any more, and nobody kept, is not called proved.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from typing import Any

from onceflow_reconciler.slices import REACH_SECONDS, Slice
from onceflow_reconciler.stripe_lists import (
    EVENTS,
    NotBelieved,
    NotReadable,
    StripeLists,
    TooManyPages,
    not_readable,
)
from onceflow_reconciler.verify.hours import (
    HOUR_SECONDS,
    LATE_SECONDS,
    HourSum,
    KnownHours,
    ToList,
    listed_before,
    to_list,
    whole_hour,
)
from onceflow_reconciler.verify.question import Question
from onceflow_reconciler.verify.tables import Tables
from onceflow_schemas.failure import Unavailable
from onceflow_schemas.times import format_time

HourSums = Mapping[str, Mapping[int, HourSum]]
"""By account and hour."""


@dataclass(slots=True)
class Told:
    """What was read of an account, and which hours were held against Stripe's list."""

    counts: dict[str, Any]
    proved: set[int]


class StripeLedger:
    """Asks Stripe for one question.

    Args:
        question: what is asked.
        tables: that are written to.
        lists: of Stripe.
        begun: when the other ledgers were begun to be read, by the monotonic clock.
    """

    def __init__(self, question: Question, tables: Tables, lists: StripeLists, *, begun: float) -> None:
        self._question = question
        self._tables = tables
        self._lists = lists
        self._begun = begun

    def read(self, hours: HourSums) -> dict[str, Told]:
        """Ask for what is not proved by what was read before; return what was read of each account that can be read.

        Raises:
            Unavailable: ``stripe_not_readable``: Stripe does not answer, or refuses us all accounts.
        """
        told: dict[str, Told] = {}
        refused: list[NotReadable] = []
        known = self._known(hours)
        for account in self._lists.accounts:
            if self._question.account not in (None, account):
                continue
            try:
                told[account] = self._ask_account(account, known.get(account, KnownHours(ours={})))
            except NotReadable as error:
                if not error.is_refused:
                    raise not_readable(error) from error
                refused.append(error)
        if refused and not told:
            raise not_readable(refused[0]) from refused[0]
        for one in refused:
            self._tables.unexplained("account_not_readable", f"{EVENTS.path} of {one.account}", one.detail)
        return told

    def _known(self, hours: HourSums) -> dict[str, KnownHours]:
        kept_out = _by_account(self._tables.rows("hours_kept_out"))
        read = _by_account(self._tables.rows("read_hours", late_seconds=HOUR_SECONDS + LATE_SECONDS))
        first = dict(self._tables.rows("first_hours"))
        told: dict[str, list[Slice]] = {}
        for account, since, until, subject, healed in self._tables.rows("out_of_reach"):
            told.setdefault(account, []).append(Slice(since, until))
            if not healed:
                says = f"no list shows events from {_shown(since)} to {_shown(until)} any more"
                self._tables.unexplained("events_out_of_reach", subject, says)
        return {
            account: KnownHours(
                ours=hours.get(account, {}),
                kept_out=kept_out.get(account, {}),
                read=read.get(account, {}),
                former=listed_before(self._question.former, account),
                first=first.get(account),
                told=told.get(account, []),
            )
            for account in self._lists.accounts
        }

    def _ask_account(self, account: str, hours: KnownHours) -> Told:
        question, now = self._question, self._lists.now(account)
        since = 0 if question.since is None else int(question.since.timestamp())
        until = now + 1 if question.until is None else int(question.until.timestamp())
        plan = to_list(Slice(since, until), now=now, hours=hours)
        proved, listed = set(plan.proved), 0
        for span in plan.spans:
            try:
                listed += self._list(account, span)
            except NotBelieved as error:
                self._tables.unexplained("list_unbelievable", f"{account}/{span.since}", error.why.detail)
                continue
            self._tables.run("add_span", account=account, since=span.since, until=span.until)
            proved |= _whole_hours(span)
        # What came while the other ledgers were read is in none of them yet.
        settled = now - question.grace_seconds - ceil(time.monotonic() - self._begun)
        self._tables.run("judge_listed", settled=settled, listed_account=account)
        self._tell_unproved(account, plan, hours)
        [(on_the_way,)] = self._tables.rows("count_on_the_way", settled=settled, listed_account=account)
        counts = {
            "listed_now": listed,
            "listed_before": sum(hours.mine(hour).events for hour in plan.proved),
            "on_the_way": on_the_way,
            "beyond_30_days": any(hour < now - REACH_SECONDS for hour in hours.ours),
        }
        return Told(counts, proved)

    def _tell_unproved(self, account: str, plan: ToList, hours: KnownHours) -> None:
        """Tell what Stripe cannot be asked for any more.

        What is told of a stretch names its end only: its beginning moves with what retention deletes.
        """
        for hour in plan.differing:
            says = f"Stripe listed {hours.read[hour].events} events of that hour, the ledgers hold {hours.mine(hour).events}"
            self._tables.unexplained("hour_differs", f"{account}/{_shown(hour)}", f"{says}, or others")
        for part in plan.unproved:
            says = "Stripe does not list that time any more, and its list was not kept"
            self._tables.unexplained("hours_unproved", f"{account}/before {_shown(part.until)}", says)

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


def _by_account(rows: list[Any]) -> dict[str, dict[int, HourSum]]:
    found: dict[str, dict[int, HourSum]] = {}
    for account, hour, events, id_hash in rows:
        found.setdefault(account, {})[hour] = HourSum(events, id_hash)
    return found


def _whole_hours(span: Slice) -> set[int]:
    begins = range(span.since + -span.since % HOUR_SECONDS, span.until, HOUR_SECONDS)
    return {hour for hour in begins if whole_hour(Slice(hour, min(hour + HOUR_SECONDS, span.until)))}


def _shown(moment: int) -> str:
    return format_time(datetime.fromtimestamp(moment, UTC))
