"""One look at all ledgers: reads positions, topics and Stripe's list into temporary tables, and has them compared.

Rule: a ledger that cannot be read ends it, so that nothing is ever called explained that was not looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from confluent_kafka import Message
from psycopg import Connection

from onceflow_processor.admission import Rules
from onceflow_processor.kafka_client import StartClient
from onceflow_reconciler.slices import Slice
from onceflow_reconciler.stripe_lists import EVENTS, NotBelieved, NotReadable, StripeLists, TooManyPages
from onceflow_reconciler.verify.hours import PROOF_VERSION, HourSum, proof_faults, to_list
from onceflow_reconciler.verify.page_lines import plain_lines, plain_outcomes, record_of
from onceflow_reconciler.verify.seen_rows import event_row, outcome_row
from onceflow_reconciler.verify.topic_scan import Bounds, opened
from onceflow_schemas.failure import Misconfigured, Unavailable
from onceflow_schemas.sql import queries
from onceflow_schemas.times import format_time

HINT_MARGIN: Final = timedelta(hours=1)
"""A record's time is its producer's clock: reading begins so much earlier."""
LISTED_MAX: Final = 1_000
"""Differences that are listed; all are counted."""
NOTED_TRIES_MAX: Final = 20
NOTED_SECONDS: Final = 0.25

_SQL = queries("verify")
_TABLES: Final = ("seen_event", "seen_outcome", "listed_event", "listed_span", "passed", "lane_before", "unexplained")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be proved, and with what.

    Args:
        kafka: librdkafka properties.
        group: a name at the broker; it is not joined.
        rules: what the deployment takes.
        event_topics: all of them.
        outcome_topic: the outcomes'.
        since, until: of the window by Stripe's clock; None for all.
        account: only this; None for all.
        grace_seconds: events of Stripe younger than this may be on their way.
        former: an earlier proof.
    """

    kafka: Mapping[str, object] = field(repr=False)
    group: str
    rules: Rules = field(repr=False)
    event_topics: tuple[str, ...]
    outcome_topic: str
    since: datetime | None
    until: datetime | None
    account: str | None
    grace_seconds: int
    former: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found; ``unexplained`` holds kind, subject and detail of the first, ``unexplained_count`` counts all."""

    events: int
    counts: Mapping[str, Any]
    unexplained_count: int
    unexplained: tuple[tuple[str, str, str], ...]
    proof: Mapping[str, Any]


class Proving:
    """Answers one question, in one transaction of its connection.

    Args:
        connection: in a transaction that the caller ends.
        question: what is asked.
        lists: of Stripe; None leaves Stripe out.
        tell: called with how many records were read of how many, None for nobody.
    """

    def __init__(
        self,
        connection: Connection[Any],
        question: Question,
        *,
        lists: StripeLists | None,
        tell: Callable[[int], object],
    ) -> None:
        self._connection = connection
        self._question = question
        self._lists = lists
        self._tell = tell
        self._read = 0
        self._topics: dict[str, dict[str, Any]] = {}
        self._window = {
            "since": question.since or datetime.min.replace(tzinfo=UTC),
            "until": question.until or datetime.max.replace(tzinfo=UTC),
            "account": question.account,
            "mode": question.rules.mode,
        }

    def answer(self) -> Answer:
        """Look and compare.

        Raises:
            Failure, psycopg.Error: a ledger cannot be read; nothing is proved.
        """
        self._run("begin")
        for table in _TABLES:
            self._run(f"make_{table}")
        self._scan_events()
        self._scan_outcomes()
        self._run("analyze")
        self._run("make_marker")
        self._note_ends()
        for step in ("make_judged", "judge_records", "judge_markers", "judge_quarantine", "make_known"):
            self._run(step)
        for step in ("judge_outcomes", "judge_lanes"):
            self._run(step)
        self._judge_lanes_behind()
        hours = self._hours()
        stripe = {} if self._lists is None else self._ask_stripe(self._lists, hours)
        return self._sum_up(hours, stripe)

    def _scan_events(self) -> None:
        question = self._question
        progress = {(topic_id, number): offset for topic_id, number, offset in self._rows("positions")}
        known = {(topic_id, number): offset for topic_id, number, offset in self._first("first_offsets")}
        _, topics = StartClient(question.kafka).ask(list(question.event_topics))
        now = datetime.now(UTC)
        for topic in question.event_topics:
            topic_id = topics[topic].topic_id
            with opened(question.kafka, topic=topic, group=question.group) as scan:
                bounds = scan.bounds(topics[topic].partitions)
                first = self._begin(
                    bounds,
                    hints=None if question.since is None else scan.offsets_at(question.since - HINT_MARGIN, bounds),
                    known={number: offset for (named, number), offset in known.items() if named == topic_id},
                )
                passed = {number: progress.get((topic_id, number), 0) for number in bounds}
                for number, one in bounds.items():
                    given = {"topic_id": topic_id, "partition": number, "low": one.low, "first": first[number]}
                    self._run("add_passed", **given, high=one.high, next_offset=passed[number])
                self._note_topic(topic, topic_id, first, bounds)
                with self._connection.cursor().copy(_SQL["copy_events"]) as copy:
                    told = question.rules.inputs.get(topic)
                    is_ours = told is None or told.format == "onceflow"
                    for page in scan.messages(first, bounds):
                        lines, rest = plain_lines(page, topic_id, passed) if is_ours else ([], page)
                        copy.write(b"".join(lines))
                        for message in rest:
                            record = record_of(topic, message)
                            behind = record.offset < passed[record.partition.number]
                            copy.write_row(
                                event_row(record, topic_id=topic_id, rules=question.rules, now=now, passed=behind)
                            )
                        self._count(len(page))

    def _note_ends(self) -> None:
        for topic, told in self._topics.items():
            with opened(self._question.kafka, topic=topic, group=self._question.group) as scan:
                for number, one in scan.bounds(len(told["partitions"])).items():
                    self._run("note_end", topic_id=told["id"], partition=number, high=one.high)

    def _scan_outcomes(self) -> None:
        question = self._question
        lanes = self._rows("lanes")
        _, topics = StartClient(question.kafka).ask([question.outcome_topic])
        facts = topics[question.outcome_topic]
        if len(lanes) != facts.partitions:
            message = f"{question.outcome_topic} has {facts.partitions} partitions, the database has {len(lanes)} lanes"
            raise Misconfigured("topic_mismatch", message, "`onceflow topics plan` shows what is set up.")
        for lane, _, _, topic_id in lanes:
            if topic_id != facts.topic_id:
                self._unexplained("outcome_topic_changed", str(lane), f"lane {lane} belongs to another topic")
        known = {lane: seq for lane, seq in self._first("first_sequences")}  # noqa: C416 - typed rows become a dictionary
        with opened(question.kafka, topic=question.outcome_topic, group=question.group) as scan:
            bounds = scan.bounds(facts.partitions)
            hints = None if question.since is None else scan.offsets_at(question.since - HINT_MARGIN, bounds)
            first = self._begin(bounds, hints=hints, known={})
            self._note_topic(question.outcome_topic, facts.topic_id, first, bounds)
            for lane, head, published, _ in lanes:
                given = {"lane": lane, "head_seq": head, "published_seq": published, "low": bounds[lane].low}
                self._run("add_lane", **given, first=first[lane])
            reached = self._copy_outcomes(scan.messages(first, bounds))
            # The time was only a hint: where the ledger knows an earlier outcome of the window, the rest is read too.
            late = {
                lane for lane, seq in known.items() if seq < reached.get(lane, 0) and first[lane] > bounds[lane].low
            }
            if late:
                ends = {lane: Bounds(bounds[lane].low, first[lane]) for lane in late}
                self._copy_outcomes(scan.messages({lane: bounds[lane].low for lane in late}, ends))

    def _copy_outcomes(self, pages: Iterable[list[Message]]) -> dict[int, int]:
        """Copy records; return the first sequence of each lane."""
        reached: dict[int, int] = {}
        source = f"urn:onceflow:{self._question.rules.deployment}"
        with self._connection.cursor().copy(_SQL["copy_outcomes"]) as copy:
            for page in pages:
                lines, firsts, rest = plain_outcomes(page, source)
                copy.write(b"".join(lines))
                for lane, seq in firsts.items():
                    reached[lane] = min(reached.get(lane, seq), seq)
                for message in rest:
                    record = record_of("", message)
                    lane = record.partition.number
                    row = outcome_row(
                        lane, record.offset, key=record.key, value=record.value, headers=record.headers, source=source
                    )
                    if row.seq is not None and not row.refill:
                        reached[lane] = min(reached.get(lane, row.seq), row.seq)
                    copy.write_row(row)
                self._count(len(page))
        return reached

    def _judge_lanes_behind(self) -> None:
        """A relay notes a moment after its commit what it has published: that is waited for."""
        behind: list[int] = []
        for tries in range(NOTED_TRIES_MAX):
            behind = [lane for (lane,) in self._rows("lanes_behind")]
            if not behind:
                return
            if tries < NOTED_TRIES_MAX - 1:
                time.sleep(NOTED_SECONDS)
        for lane in behind:
            self._unexplained("published_behind_topic", str(lane), f"lane {lane}: the topic has more than is noted")

    def _hours(self) -> dict[str, dict[int, HourSum]]:
        hours: dict[str, dict[int, HourSum]] = {}
        for account, hour, events, id_hash in self._rows("hours"):
            hours.setdefault(account, {})[hour] = HourSum(events, id_hash)
        return hours

    def _ask_stripe(self, lists: StripeLists, hours: Mapping[str, Mapping[int, HourSum]]) -> dict[str, Any]:
        told: dict[str, Any] = {}
        question = self._question
        for account in lists.accounts:
            if question.account not in (None, account):
                continue
            try:
                now = lists.now(account)
                told[account] = self._ask_account(lists, account, ours=hours.get(account, {}), now=now)
            except NotReadable as error:
                permission = f" Give the key the permission {error.permission}." if error.permission else ""
                hint = f"`onceflow doctor` tells what the key may.{permission}"
                raise Unavailable("stripe_not_readable", f"Stripe's event list: {error}", hint) from error
        return told

    def _ask_account(
        self, lists: StripeLists, account: str, *, ours: Mapping[int, HourSum], now: int
    ) -> dict[str, object]:
        question = self._question
        since = 0 if question.since is None else int(question.since.timestamp())
        until = now + 1 if question.until is None else int(question.until.timestamp())
        window = {"since": datetime.fromtimestamp(since, UTC), "until": datetime.fromtimestamp(until, UTC)}
        rows = self._rows("read_hours", **{**window, "mode": question.rules.mode})
        read = {hour: HourSum(listed, id_hash) for named, hour, listed, id_hash in rows if named == account}
        plan = to_list(Slice(since, until), now=now, read=read, ours=ours, first_hour=min(ours, default=None))
        listed = 0
        for span in plan.spans:
            try:
                listed += self._list(lists, account, span)
            except NotBelieved as error:
                self._unexplained("list_unbelievable", f"{account}/{span.since}", error.why.detail)
                continue
            self._run("add_span", account=account, since=span.since, until=span.until)
        settled = now - question.grace_seconds
        self._run("judge_listed", settled=settled, listed_account=account)
        [(on_the_way,)] = self._rows("count_on_the_way", settled=settled, listed_account=account)
        inside = {hour for hour in read if not any(span.since <= hour < span.until for span in plan.spans)}
        return {
            "listed_now": listed,
            "listed_before": sum(read[hour].events for hour in inside),
            "on_the_way": on_the_way,
            "beyond_30_days": plan.unreachable,
        }

    def _list(self, lists: StripeLists, account: str, span: Slice) -> int:
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
                    for page in lists.pages(account, EVENTS, part)
                    for event in page.items
                ]
            except TooManyPages:
                halves = part.halves()
                if halves is None:
                    raise Unavailable("stripe_not_readable", f"one second of {account} has too many events") from None
                work.extend(halves)
                continue
            with self._connection.cursor().copy(_SQL["copy_listed"]) as copy:
                for event in events:
                    copy.write_row(event)
            listed += len(events)
        return listed

    def _sum_up(self, hours: Mapping[str, Mapping[int, HourSum]], stripe: Mapping[str, Any]) -> Answer:
        question, now = self._question, datetime.now(UTC)
        [(written, published)] = self._rows("count_outcomes")
        counts = {
            "stripe": stripe,
            "records": dict(sorted(self._rows("count_states"))),
            "outcomes": {"written": written, "published": published},
            "operations": dict(sorted(self._rows("count_operations"))),
        }
        settled = int(now.timestamp()) - question.grace_seconds
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
            "hours": {
                account: {
                    str(hour): {"events": one.events, "id_hash": one.id_hash, "settled": hour + 3600 <= settled}
                    for hour, one in sums.items()
                }
                for account, sums in hours.items()
            },
            "topics": self._topics,
            "lanes": {str(lane): published_seq for lane, _, published_seq, _ in self._rows("lanes")},
        }
        if question.former is not None:
            self._compare_proof(question.former, proof)
        [(count,)] = self._rows("unexplained_count")
        [(events,)] = self._rows("count_events")
        listed = tuple((kind, subject, detail) for kind, subject, detail in self._rows("unexplained", limit=LISTED_MAX))
        return Answer(events, counts, count, listed, {**proof, "events": events, "unexplained": count})

    def _compare_proof(self, former: Mapping[str, Any], proof: Mapping[str, Any]) -> None:
        question = self._question
        [(retired,)] = self._rows("retired_until")
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
            self._unexplained(kind, subject, detail)

    def _begin(
        self, bounds: Mapping[int, Bounds], *, hints: Mapping[int, int] | None, known: Mapping[int, int]
    ) -> dict[int, int]:
        """Return where reading begins: where the time says, or earlier where the ledger knows better."""
        return {
            number: one.low
            if hints is None
            else max(one.low, min(hints[number], known.get(number, hints[number]), one.high))
            for number, one in bounds.items()
        }

    def _note_topic(self, topic: str, topic_id: str, first: Mapping[int, int], bounds: Mapping[int, Bounds]) -> None:
        places = {str(number): {"first": first[number], "end": one.high} for number, one in bounds.items()}
        self._topics[topic] = {"id": topic_id, "partitions": places}

    def _first(self, query: str) -> list[Any]:
        return [] if self._question.since is None else self._rows(query)

    def _count(self, records: int) -> None:
        self._read += records
        self._tell(self._read)

    def _unexplained(self, kind: str, subject: str, detail: str) -> None:
        self._run("add_unexplained", kind=kind, subject=subject, detail=detail)

    def _run(self, query: str, **given: object) -> None:
        self._connection.execute(_SQL[query], {**self._window, **given})

    def _rows(self, query: str, **given: object) -> list[Any]:
        return self._connection.execute(_SQL[query], {**self._window, **given}).fetchall()
