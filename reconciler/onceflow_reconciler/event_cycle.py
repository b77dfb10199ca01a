"""One look at the event list of an account: what was missed is brought, and the cursor moves behind what was handed over.

Rule: the cursor moves only when each event of a stretch is known, on its way, or confirmed by the broker; a stretch that cannot
be believed or judged stays, and is read again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from psycopg import Connection

from onceflow_producer.failpoint import hit
from onceflow_reconciler.cursors import AGAIN, NEVER, Cursor, note_losses, set_back_objects
from onceflow_reconciler.finding import Finding
from onceflow_reconciler.finding_store import record, remedied
from onceflow_reconciler.known_events import Backlog, BacklogTooLong, unknown_ids
from onceflow_reconciler.list_page import Listed
from onceflow_reconciler.republish import Republisher
from onceflow_reconciler.slices import REACH_MARGIN_SECONDS, REACH_SECONDS, Slice, SliceRules, again, ahead
from onceflow_reconciler.stripe_lists import EVENTS, NotBelieved, NotReadable, StripeLists, TooManyPages
from onceflow_reconciler.verify.hours import HOUR_SECONDS, LATE_SECONDS, HourSum, due_hour, hour_sum
from onceflow_schemas.sql import queries
from onceflow_schemas.times import format_time

SOURCE: Final = "events"
KIND: Final = "missed_event"
WHO: Final = "reconciler"
OBJECTS_BACK_SECONDS: Final = 30 * 24 * 3600
"""How long before a time without events an object may have been made that changed in it."""
CHUNK_EVENTS: Final = 1_000
"""So many events that no table knows are looked for in the topics at a time, and brought together."""
AGAIN_SECONDS: Final = 300
"""So long an hour rests of which not all was done."""
PORTION_PAUSE_SECONDS: Final = 0.05
"""Between two portions that are brought: live events wait behind a portion, not behind an outage."""
WAITING_MAX: Final = 150
"""While so many records wait before the end of what was brought, no more is: live events wait behind them too."""
ROOM_SECONDS: Final = 0.01
ROOM_SECONDS_MAX: Final = 1.0
"""A processor that does not get there so long stands still, or is gone: nothing is gained by waiting for it."""

_SQL = queries("reconcile")

log = structlog.get_logger("onceflow.reconciler")


@dataclass(slots=True)
class Told:
    """What one look did."""

    listed: int = 0
    unknown: int = 0
    missed: int = 0
    brought: int = 0
    refused: int = 0


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
        wait: sleeps so many seconds, less when the process is asked to stop; tells whether it is.
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
        wait: Callable[[float], object],
    ) -> None:
        self._connection = connection
        self._lists = lists
        self._backlog = backlog
        self._republisher = republisher
        self._mode = mode
        self._rules = rules
        self._first_seconds = first_seconds
        self._check = check
        self._wait = wait
        self._waits_for_room = True

    def look(self, account: str, *, now: int, told: Told) -> str | None:
        """Read what is ahead of the account's cursor; why it waits, None when it need not.

        Raises:
            NotBelieved, NotReadable, TooManyPages: nothing can be said; the cursor stays.
            LeaseLost, Failure, psycopg.Error: it goes on from the cursor next time.
        """
        self._waits_for_room = True
        done_until = self._cursor(account).read(first=now - self._first_seconds)
        lies_ahead = ahead(done_until, now=now, rules=self._rules)
        if lies_ahead.out_of_reach is not None and self._republisher is not None:
            self._tell_out_of_reach(account, lies_ahead.out_of_reach)
        hours = self._due_hours(account, now)
        self._note_losses(account)
        begun = self._cursor(account, AGAIN).begin(first=NEVER)
        once_more = () if self._republisher is None else again(begun.at, done_until, now=now, rules=self._rules)
        for part in (*lies_ahead.slices, *hours, *once_more):
            waiting_before = told.unknown - told.refused
            try:
                found = self._read(account, part, told)
            except BacklogTooLong:
                return "backlog"
            if part in hours:
                self._keep_hour(account, part, found, waiting=told.unknown - told.refused - waiting_before, now=now)
        if self._republisher is not None:
            if once_more:
                self._check()
                end = once_more[-1].until
                begun.move(end if end < done_until else NEVER)
            self._connection.execute(_SQL["healed_events"], {"account": account, "mode": self._mode})
        return None

    def _read(self, account: str, part: Slice, told: Told) -> HourSum:
        """Hand over a stretch, in halves where it has more pages than are read in one go; return what all of it holds."""
        found = HourSum(0, 0)
        work = deque([part])
        while work:
            piece = work.popleft()
            try:
                found = found.plus(self._hand_over(account, piece, told))
            except TooManyPages:
                halves = piece.halves()
                if halves is None:
                    raise
                work.extendleft(halves)
                continue
            self._move_cursor(account, piece.until)
        return found

    def _hand_over(self, account: str, part: Slice, told: Told) -> HourSum:
        found = HourSum(0, 0)
        unknown: list[Listed] = []
        bringing: Iterator[None] = iter(())
        try:
            for page in self._lists.pages(account, EVENTS, part):
                told.listed += len(page.items)
                found = found.plus(hour_sum(event.id for event in page.items))
                unknown += self._unknown(account, page.items)
                if len(unknown) >= CHUNK_EVENTS:
                    self._end(bringing)
                    bringing = self._bring(account, self._missed(account, unknown, told), told)
                    unknown = []
                # A portion between two pages: bringing keeps pace with reading, and little is left for the end.
                next(bringing, None)
        except (NotBelieved, NotReadable, TooManyPages, BacklogTooLong):
            # What was found before is brought.
            self._end(bringing)
            raise
        self._end(bringing)
        self._end(self._bring(account, self._missed(account, unknown, told), told))
        return found

    def _end(self, bringing: Iterator[None]) -> None:
        for _ in bringing:
            self._wait(PORTION_PAUSE_SECONDS)

    def _missed(self, account: str, unknown: list[Listed], told: Told) -> list[Listed]:
        """Return those that are not on their way either."""
        unknown = self._not_accepted(account, unknown)
        if not unknown:
            return []
        told.unknown += len(unknown)
        waiting = self._backlog.among({event.id for event in unknown})
        # Asked again: what the processor has done while the topic was looked through is known by now.
        missed = self._unknown(account, [event for event in unknown if event.id not in waiting])
        told.missed += len(missed)
        # Stripe lists the newest first; they are brought in the order in which they happened.
        return missed[::-1]

    def _not_accepted(self, account: str, events: list[Listed]) -> list[Listed]:
        """Return the events but those that a person took as missed."""
        subjects = {self._subject(account, event): event for event in events}
        given = {"kind": KIND, "subjects": list(subjects)}
        accepted = {subject for (subject,) in self._connection.execute(_SQL["accepted_subjects"], given).fetchall()}
        return [event for subject, event in subjects.items() if subject not in accepted]

    def _unknown(self, account: str, events: Sequence[Listed]) -> list[Listed]:
        """Return the events that no table knows."""
        if not events:
            return []
        ids = [event.id for event in events]
        left = set(unknown_ids(self._connection, account=account, mode=self._mode, event_ids=ids))
        return [event for event in events if event.id in left]

    def _note_losses(self, account: str) -> None:
        """Have the list read again where a ledger lost records, or was put back: whoever accepted that waits for no hour to end."""
        if self._republisher is not None and note_losses(
            self._connection, account=account, mode=self._mode, topics=self._backlog.topic_ids
        ):
            log.warning("list_read_again", account=account, reason="a ledger lost records, or was put back")

    def _due_hours(self, account: str, now: int) -> tuple[Slice, ...]:
        """Return the hours that are read once more, as a whole: the next, so that it can be proved, and one of which not all was done.

        An event that waited in the topic was handed over, and is lost all the same where the topic is lost.
        """
        if self._republisher is None:
            return ()
        given = {"account": account, "mode": self._mode}
        [(last,)] = self._connection.execute(_SQL["last_hour"], given).fetchall()
        hour = due_hour(last, now=now, first_seconds=self._first_seconds, wait_seconds=self._rules.overlap_seconds)
        asked = {**given, "reach": now - REACH_SECONDS + REACH_MARGIN_SECONDS, "wait_seconds": AGAIN_SECONDS}
        rows = self._connection.execute(_SQL["unsettled_hour"], asked).fetchall()
        unsettled = tuple(Slice(since, since + HOUR_SECONDS) for (since,) in rows)
        if hour is not None:
            return (hour, *unsettled)
        # Once more when nothing becomes visible any more, which is what a proof goes by; one in a look, beside no other.
        late = {**asked, "late": now - HOUR_SECONDS - LATE_SECONDS, "late_seconds": HOUR_SECONDS + LATE_SECONDS}
        rows = self._connection.execute(_SQL["hour_read_early"], late).fetchall()
        early = tuple(Slice(since, since + HOUR_SECONDS) for (since,) in rows)
        return (*(one for one in early if one not in unsettled), *unsettled)

    def _keep_hour(self, account: str, hour: Slice, found: HourSum, *, waiting: int, now: int) -> None:
        """Keep what Stripe listed in an hour, and how much of it no table knew."""
        self._check()
        given = {"account": account, "mode": self._mode, "hour": hour.since}
        given |= {"listed": found.events, "id_hash": found.id_hash, "listed_at": now}
        self._connection.execute(_SQL["keep_hour"], {**given, "waiting": waiting})

    def _bring(self, account: str, missed: list[Listed], told: Told) -> Iterator[None]:
        """Bring events, a portion at each step."""
        if not missed or self._republisher is None:
            return
        ids = self._record([self._finding(account, event) for event in missed])
        hit("reconciler.before_publish")
        refused: dict[str, str] = {}
        self._make_room(self._republisher)
        for _ in self._republisher.portions(account, missed, refused=refused):
            yield
            self._check()
            self._make_room(self._republisher)
        brought = [number for number, event in zip(ids, missed, strict=True) if event.id not in refused]
        remedied(self._connection, brought, action="republish", who=WHO, result="confirmed by the broker")
        hit("reconciler.after_remedied")
        told.brought += len(brought)
        log.info("missed_events_brought", account=account, events=len(brought))
        if refused:
            self._tell_refused(account, [event for event in missed if event.id in refused], refused)
            told.refused += len(refused)

    def _make_room(self, republisher: Republisher) -> None:
        """Wait until the processor has little left of what was brought; not for one that stands still."""
        fewest, give_up_at = None, time.monotonic() + ROOM_SECONDS_MAX
        while self._waits_for_room:
            waiting = self._backlog.before(republisher.topic, republisher.ends)
            if waiting <= WAITING_MAX:
                return
            if fewest is None or waiting < fewest:
                fewest, give_up_at = waiting, time.monotonic() + ROOM_SECONDS_MAX
            self._check()
            is_stopping = self._wait(ROOM_SECONDS)
            self._waits_for_room = not is_stopping and time.monotonic() < give_up_at

    def _finding(self, account: str, event: Listed, **more: object) -> Finding:
        facts = {"event_id": event.id, "type": str(event.body.get("type", "")), "created": event.created}
        more = more or {"undelivered": bool(event.body.get("pending_webhooks"))}
        return Finding(KIND, self._subject(account, event), account, self._mode, {**facts, **more})

    def _subject(self, account: str, event: Listed) -> str:
        return f"event {account}/{self._mode}/{event.id}"

    def _tell_refused(self, account: str, events: list[Listed], refused: dict[str, str]) -> None:
        """What can never be brought stays a finding for a person, and the cursor goes on."""
        self._record([self._finding(account, event, refused=refused[event.id]) for event in events])
        log.warning("missed_events_refused", account=account, events=len(events), reason=refused[events[0].id])

    def _cursor(self, account: str, source: str = SOURCE) -> Cursor:
        return Cursor(self._connection, account=account, mode=self._mode, source=source)

    def _move_cursor(self, account: str, until: int) -> None:
        if self._republisher is not None:
            self._check()
            self._cursor(account).move(until)

    def _tell_out_of_reach(self, account: str, lost: Slice) -> None:
        facts = {
            "since": format_time(datetime.fromtimestamp(lost.since, UTC)),
            "until": format_time(datetime.fromtimestamp(lost.until, UTC)),
        }
        self._record(
            [Finding("events_out_of_reach", f"events of {account} since {facts['since']}", account, self._mode, facts)]
        )
        hit("reconciler.before_set_back")
        # What these events would have told is taken from the objects: of those, Stripe lists older ones too.
        set_back_objects(self._connection, account=account, mode=self._mode, to=lost.since - OBJECTS_BACK_SECONDS)

    def _record(self, findings: list[Finding]) -> list[int]:
        self._check()
        with self._connection.transaction():
            return record(self._connection, findings)
