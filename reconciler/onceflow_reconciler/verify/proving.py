"""One look at all ledgers: reads positions, topics and Stripe's list into temporary tables, and has them compared.

Rule: a ledger that cannot be read ends it, so that nothing is ever called explained that was not looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final

from psycopg import Connection

from onceflow_reconciler.stripe_lists import StripeLists
from onceflow_reconciler.verify.event_ledger import EventLedger, note_ends
from onceflow_reconciler.verify.fingerprints import judge_fingerprints
from onceflow_reconciler.verify.hours import LATE_SECONDS, PROOF_VERSION, HourSum, proof_faults, proof_hours
from onceflow_reconciler.verify.object_ledger import ObjectLedger
from onceflow_reconciler.verify.operation_rows import judge_operations
from onceflow_reconciler.verify.outcome_ledger import OutcomeLedger
from onceflow_reconciler.verify.question import Answer, Question
from onceflow_reconciler.verify.repeats import judge_repeats
from onceflow_reconciler.verify.served import check_served
from onceflow_reconciler.verify.stripe_ledger import HourSums, StripeLedger, Told
from onceflow_reconciler.verify.tables import RowBlocks, Tables
from onceflow_schemas.times import format_time

LISTED_MAX: Final = 1_000
"""Differences that are listed; all are counted."""
NOTED_TRIES_MAX: Final = 20
NOTED_SECONDS: Final = 0.25
STEPS: Final = (
    "judge_records", "judge_markers", "judge_quarantine", "make_known", "judge_outcomes", "judge_lanes",
    "judge_positions", "judge_trimmed", "judge_states",
    "judge_retention", "judge_stops", "judge_keys",
)  # fmt: skip


class Proving:
    """Answers one question, in one transaction of its connection.

    Args:
        connection: in a transaction that the caller ends.
        question: what is asked.
        beside: another one, in autocommit, for what is read meanwhile.
        lists: of Stripe; None leaves Stripe out.
        tell: called with how many records were read of how many, None for nobody.
    """

    def __init__(
        self,
        connection: Connection[Any],
        question: Question,
        *,
        beside: Connection[Any],
        lists: StripeLists | None,
        tell: Callable[[int], object],
    ) -> None:
        self._connection = connection
        self._question = question
        self._tables = Tables(connection, question, tell=tell)
        self._beside = beside
        self._lists = lists

    def answer(self) -> Answer:
        """Look and compare.

        Raises:
            Failure, psycopg.Error: a ledger cannot be read; nothing is proved.
        """
        begun = time.monotonic()
        self._tables.make()
        check_served(self._question, self._tables)
        fingerprints = self._tables.rows("fingerprints")
        topics = self._read_topics()
        judge_fingerprints(self._question, self._tables, topics, rows=fingerprints)
        for step in ("analyze", "make_marker"):
            self._tables.run(step)
        note_ends(self._question, self._tables, topics)
        self._tables.run("make_judged")
        judge_repeats(self._question, self._tables, topics)
        for step in STEPS:
            self._tables.run(step, begins=self._question.since is not None)
            # Whoever is told renews a lease meanwhile.
            self._tables.count(0)
        judge_operations(self._tables)
        self._judge_lanes_behind()
        hours = self._hours()
        stripe: dict[str, Told] = {}
        compared: dict[str, Any] = {}
        if self._lists is not None:
            stripe = StripeLedger(self._question, self._tables, self._lists, begun=begun).read(hours)
            objects = ObjectLedger(self._connection, self._question, tables=self._tables, lists=self._lists)
            for account, counts in objects.read(hours, accounts=tuple(stripe)).items():
                stripe[account].counts |= counts
            compared = objects.compared
        return self._sum_up(hours, stripe, {"topics": topics, "objects": compared}, begun=begun)

    def _read_topics(self) -> dict[str, Any]:
        rows = RowBlocks(self._beside)
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="verify") as thread:
            events = EventLedger(self._question, self._tables, rows=rows, beside=thread)
            outcomes = OutcomeLedger(self._question, self._tables, rows=rows, beside=thread)
            try:
                outcomes.begin()
                events.read()
                outcomes.read()
            except BaseException:
                rows.cancel()
                raise
            finally:
                outcomes.close()
        return {**events.topics, **outcomes.topics}

    def _judge_lanes_behind(self) -> None:
        """A relay notes a moment after its commit what it has published: that is waited for."""
        behind: list[int] = []
        for tries in range(NOTED_TRIES_MAX):
            behind = [lane for (lane,) in self._tables.rows("lanes_behind")]
            if not behind:
                return
            if tries < NOTED_TRIES_MAX - 1:
                time.sleep(NOTED_SECONDS)
        for lane in behind:
            self._tables.unexplained(
                "published_behind_topic", str(lane), f"lane {lane}: the topic has more than is noted"
            )

    def _hours(self) -> dict[str, dict[int, HourSum]]:
        hours: dict[str, dict[int, HourSum]] = {}
        for account, hour, events, id_hash in self._tables.rows("hours"):
            hours.setdefault(account, {})[hour] = HourSum(events, id_hash)
        return hours

    def _sum_up(self, hours: HourSums, stripe: Mapping[str, Told], seen: Mapping[str, Any], *, begun: float) -> Answer:
        question, now = self._question, datetime.now(UTC)
        [(written, published)] = self._tables.rows("count_outcomes")
        counts = {
            "stripe": {account: told.counts for account, told in stripe.items()},
            "records": dict(sorted(self._tables.rows("count_states"))),
            "outcomes": {"written": written, "published": published},
            "operations": dict(sorted(self._tables.rows("count_operations"))),
        }
        settled = int(now.timestamp() - (time.monotonic() - begun)) - LATE_SECONDS
        proved = {account: told.proved for account, told in stripe.items()}
        proof: dict[str, Any] = {
            "version": PROOF_VERSION,
            "made_at": format_time(now),
            "deployment": question.rules.deployment,
            "mode": question.rules.mode,
            "account": question.account,
            "since": None if question.since is None else format_time(question.since),
            "until": None if question.until is None else format_time(question.until),
            "stripe_asked": self._lists is not None,
            "counts": counts,
            "hours": proof_hours(hours, proved, settled=settled),
            **seen,
            "lanes": {str(lane): published_seq for lane, _, published_seq, _ in self._tables.rows("lanes")},
        }
        if question.former is not None:
            self._compare_proof(question.former, proof)
        accepted = tuple(self._tables.rows("take_accepted"))
        [(count,)] = self._tables.rows("unexplained_count")
        [(events,)] = self._tables.rows("count_events")
        listed = tuple(
            (kind, subject, detail) for kind, subject, detail in self._tables.rows("unexplained", limit=LISTED_MAX)
        )
        told = {**proof, "events": events, "unexplained": count, "accepted": len(accepted)}
        return Answer(events, counts, count, listed, told, accepted)

    def _compare_proof(self, former: Mapping[str, Any], proof: Mapping[str, Any]) -> None:
        question = self._question
        [(retired,)] = self._tables.rows("retired_until")
        if question.account is not None:
            former = {**former, "hours": {question.account: former["hours"].get(question.account, {})}}
        faults = proof_faults(
            former,
            proof,
            since=0 if question.since is None else int(question.since.timestamp()),
            until=2**62 if question.until is None else int(question.until.timestamp()),
            retired_until=0 if retired is None else int(retired.timestamp()),
        )
        for kind, subject, detail in faults:
            self._tables.unexplained(kind, subject, detail)
