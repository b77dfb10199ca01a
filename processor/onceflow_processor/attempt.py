"""One attempt at one batch: guard, claims, handlers, tail, COMMIT, in one transaction.

Rule: an attempt either commits everything or leaves nothing but faults noted on its items; it never retries itself.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg import Connection

from onceflow_processor.admission import Fault, Item, stranger
from onceflow_processor.breaker import Breaker
from onceflow_processor.claim import IN_TURN, Claimed, Entry, claim, event_of
from onceflow_processor.deadline import Deadline
from onceflow_processor.effects import Effects, FactKey, fact_key
from onceflow_processor.event import Event
from onceflow_processor.handler_run import HandlerRun, HandlerSettings, reset_session
from onceflow_processor.handlers import Handlers
from onceflow_processor.hints import Hint, hints_of
from onceflow_processor.ignoring import counts_by_handler, reasons_of
from onceflow_processor.known import Known
from onceflow_processor.look_up import look_up_facts
from onceflow_processor.object_guard import lock_guards
from onceflow_processor.ordering import counts_of, stale_of
from onceflow_processor.parking import Waiting, exhausted, give_way, line_of, stand_behind
from onceflow_processor.position import Position
from onceflow_processor.read_course import thin_event
from onceflow_processor.reads.asking import read_results
from onceflow_processor.records import Partition
from onceflow_processor.start_check import TRANSACTION_TIMEOUT_SINCE
from onceflow_processor.tail import Tail, write_tail
from onceflow_producer.failpoint import hit
from onceflow_schemas.api_versions import is_known
from onceflow_schemas.event_moves import State
from onceflow_schemas.failure_course import Course, RetryRules
from onceflow_schemas.sql import queries

_GUARD_BITS = 62
_SQL = queries("batch")


class StrangersFound(Exception):
    """Items turned out not to be ours to mark; they are noted, and the batch is run again without their markers."""


@dataclass(frozen=True, slots=True)
class AttemptSettings:
    """What every attempt of this process needs to know."""

    run: HandlerSettings
    cluster_id: str
    retry: RetryRules = field(default_factory=RetryRules)

    @property
    def handlers(self) -> Handlers:
        """The registry."""
        return self.run.handlers


@dataclass(slots=True)
class Counts:
    """What a committed batch did, for metrics and logs; ``kept`` are the records that went to quarantine."""

    processed: int = 0
    ignored: int = 0
    parked: int = 0
    duplicate: int = 0
    outcomes: int = 0
    operations: int = 0
    hints: int = 0
    text_replaced: int = 0
    unknown_versions: dict[str, int] = field(default_factory=dict)
    ordered: dict[str, int] = field(default_factory=dict)
    ignored_by: dict[str, int] = field(default_factory=dict)
    quarantined: dict[str, int] = field(default_factory=dict)
    kept: list[tuple[Item, Fault]] = field(default_factory=list)

    def by_name(self) -> dict[str, int]:
        """Return what became of the events and what they gave, as plain counts."""
        return {
            "processed": self.processed,
            "ignored": self.ignored,
            "parked": self.parked,
            "duplicate": self.duplicate,
            "quarantined": sum(self.quarantined.values()),
            "outcomes": self.outcomes,
            "operations": self.operations,
        }


class Attempt:
    """One transaction over the items of a batch."""

    def __init__(
        self,
        connection: Connection[Any],
        *,
        settings: AttemptSettings,
        items: Sequence[Item],
        positions: Mapping[Partition, Position],
        known: Known,
        deadline: Deadline,
        breaker: Breaker,
        entry: Entry = IN_TURN,
    ) -> None:
        self._connection = connection
        self._settings = settings
        self._entry = entry
        self._items = items
        self._positions = positions
        self._known = known
        self._deadline = deadline
        self._breaker = breaker
        self._guard = secrets.randbits(_GUARD_BITS) + 1
        self._hints: list[Hint] = []
        self.effects: list[tuple[Item, Effects]] = []

    def run(self, *, savepoints: bool) -> Counts:
        """Run the attempt to its COMMIT.

        Args:
            savepoints: False for the fast first pass, True after a handler has failed.

        Raises:
            psycopg.Error, HandlerFailed, CutBefore, NotCommitted, StrangersFound: the caller rolls back and decides.
        """
        counts = Counts()
        claimed = self._claim()
        hit("processor.after_markers")
        counts.duplicate = claimed.duplicates
        self._begin_reads(claimed.firsts)
        wanted = self._read_bodies(claimed.firsts, counts)
        work = (
            _without(wanted, stand_behind(claimed.firsts, claimed.parked_keys)) if self._may_wait(claimed) else wanted
        )
        lock_guards(self._connection, work, guards=self._known.guards, handlers=self._settings.handlers)
        self._look_up_declared_facts(work)
        run = self._handler_run()
        self.effects = run.with_savepoints(work) if savepoints else run.plain(work)
        hit("processor.after_handlers")
        self._write_tail(claimed, self._behind(wanted), counts)
        hit("processor.after_commit")
        self._known.commit()
        if self._breaker.watched:
            run.tell_successes(self.effects)
        return counts

    def rehearse(self) -> bool:
        """Run the handlers once and write nothing: True when they ran and went well; the caller rolls back.

        Raises:
            psycopg.Error, HandlerFailed, StrangersFound: as ``run``.
        """
        firsts = self._claim().firsts
        self._begin_reads(firsts)
        work = self._read_bodies(firsts, Counts())
        lock_guards(self._connection, work, guards=self._known.guards, handlers=self._settings.handlers)
        self._look_up_declared_facts(work)
        for item, event in work:
            self._handler_run().rehearse(item, event)
        return bool(work)

    def _begin_reads(self, firsts: Sequence[Item]) -> None:
        """Look up what was read for the events, where something may have been: records in their turn come for the first time."""
        enabled, looks = self._settings.run.read_objects, not self._entry.has_progress and bool(firsts)
        found = read_results(self._connection, firsts) if enabled and looks else {}
        self._known.reads.begin(found, enabled=enabled)

    def _may_wait(self, claimed: Claimed) -> bool:
        return bool(claimed.parked_keys) or any(item.fault is not None for item in claimed.firsts)

    def _behind(self, wanted: Sequence[tuple[Item, Event]]) -> list[Item]:
        """Return the events that have handlers and neither failed nor ran: they stand behind another of their key."""
        if len(self.effects) == len(wanted):
            return []
        ran = {id(item) for item, _ in self.effects}
        return [item for item, _ in wanted if item.fault is None and id(item) not in ran]

    def _claim(self) -> Claimed:
        return claim(
            self._connection,
            self._items,
            entry=self._entry,
            handlers=self._settings.handlers,
            topic_id_of=lambda item: self._positions[item.record.partition].topic_id,
            open_transaction=self._open,
        )

    def _handler_run(self) -> HandlerRun:
        return HandlerRun(
            self._connection,
            settings=self._settings.run,
            known=self._known,
            deadline=self._deadline,
            breaker=self._breaker,
        )

    def _open(self) -> None:
        """BEGIN comes by itself before the first statement."""
        reset_session(self._connection)
        self._settings.run.set_limits(self._connection)
        self._connection.execute(_SQL["guard_open"], {"guard": self._guard})
        hit("processor.after_begin")

    def _read_bodies(self, firsts: Sequence[Item], counts: Counts) -> list[tuple[Item, Event]]:
        """Parse the bodies anew in every attempt, because a handler may have changed what it was given."""
        work: list[tuple[Item, Event]] = []
        strangers = False
        for item in firsts:
            if item.fault is not None:
                continue
            envelope = item.take_envelope()
            is_thin = envelope.is_thin and envelope.problem == "unsupported_kind" and self._known.reads.enabled
            if (envelope.problem is not None and not is_thin) or envelope.created is None or envelope.body is None:
                item.fault = Fault(envelope.problem or "not_an_event", envelope.detail)
                continue
            counts.text_replaced += envelope.replaced
            version = envelope.api_version
            if version is not None and not is_known(version):
                counts.unknown_versions[version] = counts.unknown_versions.get(version, 0) + 1
            record = event_of(item)
            strange = stranger(item.record, record, envelope)
            if strange is not None:
                item.event, item.fault = None, strange
                strangers = True
                continue
            if not is_thin:
                self._hints.extend(hints_of(envelope, record.identity))
            if self._settings.handlers.for_type(record.type):
                event = Event(
                    identity=record.identity,
                    type=record.type,
                    created=envelope.created,
                    received_at=record.received_at,
                    api_version=envelope.api_version,
                    body=envelope.body,
                    raw=item.body,
                    text_replaced=envelope.replaced,
                )
                whole = thin_event(event, self._known.reads.of(event.identity)) if is_thin else event
                if isinstance(whole, Fault):
                    item.fault = whole
                else:
                    work.append((item, whole))
        if strangers:
            raise StrangersFound
        return work

    def _look_up_declared_facts(self, work: Sequence[tuple[Item, Event]]) -> None:
        """Ask for the facts that handlers declared, in one query; a faulty declaration is left to the handler."""
        wanted: set[FactKey] = set()
        for _, event in work:
            for handler in self._settings.handlers.for_type(event.type):
                if handler.facts is None:
                    continue
                try:
                    wanted.update(fact_key(namespace, tuple(parts)) for namespace, *parts in handler.facts(event))
                except Exception:  # noqa: BLE001, S112 - the user's function; its handler will meet the same event.
                    continue
        if wanted:
            look_up_facts(self._connection, self._known.facts, keys=sorted(wanted))

    def _write_tail(self, claimed: Claimed, behind: Sequence[Item], counts: Counts) -> None:
        untrusted = [item for item in self._items if item.event is None]
        behind = [*behind, *give_way(claimed.firsts, claimed.parked_keys)]
        failed = [item for item in claimed.firsts if item.fault is not None]
        self._spend_attempts(failed)
        line = self._line(claimed, behind) if failed or behind else []
        parked = [waiting.item for waiting in line if waiting.wait_seconds is not None]
        quarantine = [
            (item, item.fault)
            for item in (*untrusted, *failed)
            if item.fault is not None and item.fault.course is not Course.PARK
        ]
        moved = [(item, State.QUARANTINED.value) for item, _ in quarantine if item.event is not None]
        moved.extend((item, State.PARKED.value) for item in parked)
        quarantine.extend(claimed.conflicts)
        lasts = {item.record.partition: item for item in self._items}
        outcomes = [outcome for _, effects in self.effects for outcome in effects.outcomes]
        counts.processed = len(self.effects)
        # Those that only stand behind a redriven head were counted when they came.
        counts.parked = (
            len(parked) if self._entry.redriven is None else len(set(map(id, parked)) - set(map(id, behind)))
        )
        counts.ignored = len(claimed.firsts) - len(failed) - len(behind) - len(self.effects)
        counts.outcomes = len(outcomes)
        operations = self._known.operations.asked()
        counts.operations, counts.hints = len(operations), len(self._hints)
        counts.kept = quarantine
        counts.ignored_by = counts_by_handler(self.effects)
        counts.ordered = counts_of(effects for _, effects in self.effects)
        for _, fault in quarantine:
            counts.quarantined[fault.code] = counts.quarantined.get(fault.code, 0) + 1
        write_tail(
            self._connection,
            Tail(
                guard=self._guard,
                cluster_id=self._settings.cluster_id,
                again=[claim for _, effects in self.effects for claim in effects.again],
                guards=self._known.guards.moved(),
                stale=stale_of(effects for _, effects in self.effects),
                ignored=reasons_of(self.effects),
                facts=self._known.facts.claimed(),
                failed=moved,
                quarantine=quarantine,
                line=line,
                redriven=self._entry.redriven,
                left=[one.parked_as for one in self._items if one.parked_as is not None and not _is_in(one, parked)],
                moves=[(partition, self._positions[partition], last) for partition, last in lasts.items()]
                if self._entry.has_progress
                else (),
                topic_ids={partition.topic: self._positions[partition].topic_id for partition in lasts},
                outcomes=outcomes,
                operations=operations,
                hints=self._hints,
                note=self._note(counts),
            ),
        )

    def _note(self, counts: Counts) -> Callable[[], None] | None:
        note = self._entry.note
        if note is None:
            return None
        return lambda: note(self._connection, self._items, counts.by_name())

    def _spend_attempts(self, failed: Sequence[Item]) -> None:
        """What was tried from parking too often needs a person now."""
        for item in failed:
            if item.fault is not None:
                item.fault = exhausted(item.fault, attempts=item.attempts, rules=self._settings.retry)

    def _line(self, claimed: Claimed, behind: Sequence[Item]) -> list[Waiting]:
        return line_of(
            claimed.firsts,
            behind,
            rules=self._settings.retry,
            share=random.random,
        )


def _is_in(item: Item, items: Sequence[Item]) -> bool:
    return any(one is item for one in items)


def _without(work: Sequence[tuple[Item, Event]], behind: Sequence[Item]) -> list[tuple[Item, Event]]:
    stands = {id(item) for item in behind}
    return [(item, event) for item, event in work if id(item) not in stands]


def limits_setter(
    *, lock_timeout_ms: int, transaction_ms_max: int, server_version: int
) -> Callable[[Connection[Any]], None]:
    """Return what sets the limits of a transaction; ``server_version`` as libpq tells it."""
    limits = {"lock_timeout": f"{lock_timeout_ms}ms", "transaction_ms_max": f"{transaction_ms_max}ms"}
    query = _SQL["limits" if server_version >= TRANSACTION_TIMEOUT_SINCE else "limits_before_17"]

    def set_limits(connection: Connection[Any]) -> None:
        connection.execute(query, limits)

    return set_limits
