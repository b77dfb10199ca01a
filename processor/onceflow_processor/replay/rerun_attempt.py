"""One transaction in which events that were processed run again.

Rule: what is committed is ours alone: revisions, new outcomes, facts, running totals, allowed operations, and the run's row; a
look ends with a rollback.  An event counts as a whole: one that fails or is held leaves nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from psycopg import Connection
from psycopg.pq import TransactionStatus

from onceflow_processor.admission import Fault, Item
from onceflow_processor.arrays import Texts
from onceflow_processor.attempt import AttemptSettings
from onceflow_processor.breaker import Breaker
from onceflow_processor.deadline import Deadline
from onceflow_processor.effects import Effects
from onceflow_processor.event import Event
from onceflow_processor.handler_failure import HandlerFailed
from onceflow_processor.handler_run import reset_session
from onceflow_processor.handlers import Handlers
from onceflow_processor.known import Known
from onceflow_processor.object_guard import offered_states
from onceflow_processor.read_course import ReadResults, event_met
from onceflow_processor.reads.asking import recorded_results
from onceflow_processor.replay.recorded import RecordedFacts, RecordedGuards, RecordedOperations, RecordedTotals
from onceflow_processor.replay.rerun_handlers import RerunHandlers
from onceflow_processor.replay.rerun_report import EventRerun
from onceflow_processor.replay.revisions import Change, Stored, compare, gone
from onceflow_processor.replay.revisions import Known as KnownOutcome
from onceflow_processor.retention.store import read_gone
from onceflow_processor.tail import Tail, write_tail
from onceflow_schemas.identity import Identity
from onceflow_schemas.sql import queries

_GUARD_BITS: Final = 62
_SQL = queries("replay")
_BATCH = queries("batch")


class OutcomesGone(Exception):
    """Retention deleted outcomes while the handlers of their events ran: the chunk runs again, without those events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunRules:
    """What a rerun may do; ``handlers`` is the whole registry, with those that never run again."""

    execute: bool
    allow_operations: bool
    handlers: Handlers


@dataclass(frozen=True, slots=True)
class _Marker:
    state: str
    processed_at: datetime
    is_stale: bool | None
    body_sha256: bytes


class RerunAttempt:
    """Runs a chunk of events once.

    Args:
        connection: idle; the caller rolls back when this raises.
        reader: in autocommit, for what is recorded.
        settings: with the registry of replays.
        rules: what may be done.
        deadline: of each handler.
        faults: of events that broke an earlier transaction of this chunk: they do not run again.
        seen: events that this run has done already, from other records.
        told: new operations that events of this run have asked for already.
        run_id: of this run; None for a look.
    """

    def __init__(
        self,
        connection: Connection[Any],
        reader: Connection[Any],
        *,
        settings: AttemptSettings,
        rules: RerunRules,
        deadline: Deadline,
        faults: Mapping[Identity, Fault],
        seen: Collection[Identity] = (),
        told: Collection[UUID] = (),
        run_id: int | None = None,
    ) -> None:
        self._connection = connection
        self._reader = reader
        self._settings = settings
        self._rules = rules
        self._deadline = deadline
        self._faults = faults
        self._seen = seen
        self._run_id = run_id
        self._guard = secrets.randbits(_GUARD_BITS) + 1
        self._operations = RecordedOperations(reader, told)
        self._known = Known()

    def run(self, items: Sequence[Item], note: Callable[[Sequence[EventRerun]], None]) -> list[EventRerun]:
        """Run the events and commit, or roll back when it is a look.

        Args:
            items: trusted ones, of one partition.
            note: called in the transaction, with what was found.

        Raises:
            HandlerFailed: the transaction is broken; the event must be left out.
            CutBefore: the handlers take too long for one transaction; the caller rolls back, and runs fewer.
            psycopg.Error, NotCommitted, TotalMoved, OutcomesGone: the caller rolls back and decides.
        """
        self._open()
        markers = self._markers(items)
        self._begin_reads(items)
        found, work = self._sort_out(items, markers)
        self._prepare(work, markers)
        ran = [self._run_event(item, event, is_first=not place) for place, (item, event) in enumerate(work)]
        found += self._compared(ran, markers)
        if not self._rules.execute:
            note(found)
            self._connection.rollback()
            return found
        fresh = [
            one.outcome
            for rerun in found
            if rerun.fault is None and not rerun.held
            for one in rerun.compared
            if one.change in (Change.NEW, Change.CHANGED)
        ]
        write_tail(
            self._connection,
            Tail(
                guard=self._guard,
                cluster_id=self._settings.cluster_id,
                facts=self._known.facts.claimed(),
                failed=(),
                quarantine=(),
                moves=(),
                topic_ids={},
                outcomes=fresh,
                operations=self._operations.asked(),
                note=lambda: note(found),
            ),
        )
        return found

    def _open(self) -> None:
        with self._connection.pipeline():
            reset_session(self._connection)
            self._settings.run.set_limits(self._connection)
            self._connection.execute(_BATCH["guard_open"], {"guard": self._guard})

    def _markers(self, items: Sequence[Item]) -> dict[Identity, _Marker]:
        identities = [item.event.identity for item in items if item.event is not None]
        query = _SQL["rerun_lock" if self._rules.execute else "rerun_look"]
        rows = self._connection.execute(
            query,
            {
                "accounts": Texts(one.account for one in identities),
                "modes": Texts(one.mode for one in identities),
                "event_ids": Texts(one.event_id for one in identities),
            },
        ).fetchall()
        return {Identity(*row[:3]): _Marker(row[3], row[4], row[5], bytes(row[6])) for row in rows}

    def _begin_reads(self, items: Sequence[Item]) -> None:
        """What was read at Stripe for an event is given again; nothing is asked for."""
        enabled = self._settings.run.read_objects
        found = recorded_results(self._reader, items) if enabled else {}
        self._known.reads.begin(found, enabled=enabled)

    def _sort_out(
        self, items: Sequence[Item], markers: Mapping[Identity, _Marker]
    ) -> tuple[list[EventRerun], list[tuple[Item, Event]]]:
        """Leave out repeats, and events of which nothing can be told; read the bodies of the others."""
        outcomes_from = read_gone(self._reader).outcomes
        found: list[EventRerun] = []
        work: list[tuple[Item, Event]] = []
        seen: set[Identity] = set()
        for item in items:
            assert item.event is not None, "only trusted records run"
            identity, marker = item.event.identity, markers.get(item.event.identity)
            passed_over = None
            if marker is None or marker.state != "processed":
                passed_over = "changed_meanwhile"
            elif identity in seen or identity in self._seen or marker.body_sha256 != item.event.body_sha256:
                passed_over = "repeat"
            elif outcomes_from is not None and marker.processed_at < outcomes_from:
                passed_over = "outcomes_deleted"
            if passed_over != "repeat":
                seen.add(identity)
            if passed_over is not None:
                found.append(EventRerun(identity, item.event.type, passed_over=passed_over))
                continue
            event = self._faults.get(identity) or _event_of(item, self._known.reads)
            if isinstance(event, Fault):
                found.append(EventRerun(identity, item.event.type, fault=event))
            else:
                work.append((item, event))
        return found, work

    def _prepare(self, work: Sequence[tuple[Item, Event]], markers: Mapping[Identity, _Marker]) -> None:
        self._known.facts = RecordedFacts(self._reader)
        self._known.operations = self._operations
        # Of the whole registry: that a handler stays out does not change what the event is to its object.
        stale = {identity: marker.is_stale for identity, marker in markers.items()}
        self._known.guards = RecordedGuards(dict(offered_states(work, self._rules.handlers)), stale)
        self._handlers = RerunHandlers(
            self._connection,
            settings=self._settings.run,
            known=self._known,
            deadline=self._deadline,
            breaker=Breaker(),
            totals=RecordedTotals(self._reader),
        )

    def _run_event(self, item: Item, event: Event, *, is_first: bool) -> tuple[Event, Effects, EventRerun]:
        """Run the handlers of one event in a savepoint; what it asked for, unless it failed or is held."""
        self._operations.met.clear()
        self._connection.execute(_SQL["savepoint_event"])
        try:
            effects = self._handlers.rehearse(item, event, is_first=is_first)
        except HandlerFailed as failure:
            if failure.spoils or self._connection.closed:
                raise
            if self._connection.info.transaction_status == TransactionStatus.IDLE:
                raise
            self._connection.execute(_SQL["rollback_event"])
            met = tuple(self._operations.met)
            return event, Effects(), EventRerun(event.identity, event.type, operations=met, fault=failure.fault)
        met = tuple(self._operations.met)
        held = bool(effects.operations) and not self._rules.allow_operations
        if held:
            self._connection.execute(_SQL["rollback_event"])
            self._known.give_back(effects)
        self._connection.execute(_SQL["release_event"])
        return event, effects, EventRerun(event.identity, event.type, operations=met, held=held)

    def _compared(
        self, ran: Sequence[tuple[Event, Effects, EventRerun]], markers: Mapping[Identity, _Marker]
    ) -> list[EventRerun]:
        """Look up what there is of the outcomes, and compare."""
        ids = [outcome.outcome_id for _, effects, _ in ran for outcome in effects.outcomes]
        stored: dict[UUID, Stored] = {}
        if ids:
            rows = self._reader.execute(_SQL["highest_revisions"], {"outcome_ids": ids}).fetchall()
            stored = {row[0]: Stored(row[1], bytes(row[2])) for row in rows}
        given = self._given_by([event for event, _, _ in ran], markers)
        # Asked after the outcomes were: what is not there now, and is younger than what is deleted, never was.
        outcomes_from = read_gone(self._reader).outcomes
        if outcomes_from is not None and any(
            markers[event.identity].processed_at < outcomes_from for event, _, _ in ran
        ):
            raise OutcomesGone
        found = []
        for event, effects, rerun in ran:
            if rerun.fault is not None:
                found.append(rerun)
                continue
            found.append(
                EventRerun(
                    rerun.identity,
                    rerun.event_type,
                    compared=compare(effects.outcomes, stored),
                    gone=gone(
                        given.get(event.cause, ()), effects.outcomes, left_out=self._rules.handlers.left_out_of_replay()
                    ),
                    operations=rerun.operations,
                    held=rerun.held,
                )
            )
        return found

    def _given_by(self, events: Sequence[Event], markers: Mapping[Identity, _Marker]) -> dict[str, list[KnownOutcome]]:
        if not events:
            return {}
        times = [markers[event.identity].processed_at for event in events]
        causes = [event.cause for event in events]
        asked = {"causes": causes, "first": min(times), "last": max(times), "run_id": self._run_id}
        given: dict[str, list[KnownOutcome]] = {}
        for row in self._reader.execute(_SQL["outcomes_of"], asked).fetchall():
            known = KnownOutcome(*row)
            given.setdefault(known.cause, []).append(known)
        return given


def _event_of(item: Item, reads: ReadResults) -> Event | Fault:
    envelope = item.take_envelope()
    is_thin = envelope.is_thin and envelope.problem == "unsupported_kind" and reads.enabled
    unread = envelope.problem is not None and not is_thin
    if item.event is None or unread or envelope.created is None or envelope.body is None:
        return Fault("not_an_event", "the body cannot be read any more")
    return event_met(item.event, envelope, raw=item.body, is_thin=is_thin, reads=reads)
