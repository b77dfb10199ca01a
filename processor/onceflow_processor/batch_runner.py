"""Carrying a batch through: reruns, savepoints after a failure, halving, and cuts.

Rule: every way out commits something, notes a fault on an item, makes the batch smaller, or tells the worker that
somebody else must act.  So no batch is tried for ever, and a bad event never takes its neighbours with it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
import structlog
from psycopg import Connection
from psycopg.pq import TransactionStatus

from onceflow_processor.admission import Fault, Item
from onceflow_processor.attempt import Attempt, AttemptSettings, Counts, StrangersFound
from onceflow_processor.breaker import Breaker
from onceflow_processor.claim import IN_TURN, Entry
from onceflow_processor.database import first_line
from onceflow_processor.deadline import Deadline
from onceflow_processor.handler_failure import (
    ConnectionLost,
    CutBefore,
    HandlerFailed,
    HandlerWaits,
    count_try,
    kind_of,
    log_failure,
)
from onceflow_processor.known import Known
from onceflow_processor.look_up import Held, find_held, look_up_facts, look_up_operations
from onceflow_processor.parking import NAMES_SEPARATOR
from onceflow_processor.position import Position
from onceflow_processor.records import Partition
from onceflow_processor.relay.lane_check import COMES_BACK, HANDS_OUT
from onceflow_processor.sqlstates import Meaning, meaning_of
from onceflow_processor.tail import NotCommitted, fingerprint_of
from onceflow_schemas.failure import LeaseLost, Unavailable
from onceflow_schemas.sql import queries

RERUNS_MAX = 10
"""Reruns of one batch for faults of the moment before the database counts as away."""

REHEARSED_EVENTS_MAX = 20
"""So many events behind one that waits are rehearsed at once."""

RERUN_WAIT_SECONDS_MAX = 0.5
OUTCOME_INDEX = "outcome_outcome_id_revision_key"
CANCEL_SECONDS_MAX = 2.0
_RERUN_WAIT_SECONDS = 0.01

_SQL_LANES = queries("start")["lanes"]

log = structlog.get_logger("onceflow.processor")


class ConnectionSpoiled(Exception):
    """The connection must be replaced, though the database is there: a handler was stopped in the middle of a query."""


@dataclass(slots=True)
class BatchEnd:
    """How a batch ended.

    ``positions`` are the new ones of its partitions.  ``held`` names partitions that cannot go on now and the offset
    from which, ``reasons`` says why: their next record writes to a lane that hands out no sequence (``closed_lanes``:
    lane -> state), or most events of its handler fail alike.  ``suspect`` is the item in whose handlers the connection
    was lost.
    """

    positions: dict[Partition, Position] = field(default_factory=dict)
    held: dict[Partition, int] = field(default_factory=dict)
    reasons: dict[Partition, str] = field(default_factory=dict)
    closed_lanes: dict[int, str] = field(default_factory=dict)
    counts: list[Counts] = field(default_factory=list)
    suspect: Item | None = None

    def hold(self, item: Item, reason: str) -> None:
        """Hold an item's partition from this item on; the earliest hold of a partition counts."""
        partition, offset = item.record.partition, item.record.offset
        if offset < self.held.get(partition, offset + 1):
            self.held[partition] = offset
            self.reasons[partition] = reason

    def is_open(self, item: Item) -> bool:
        """Return True for an item that is neither done nor held."""
        partition, offset = item.record.partition, item.record.offset
        position = self.positions.get(partition)
        if position is not None and offset < position.next_offset:
            return False
        return partition not in self.held or offset < self.held[partition]


class BatchRunner:
    """Runs batches over one connection, one at a time."""

    def __init__(
        self,
        connection: Connection[Any],
        *,
        settings: AttemptSettings,
        known: Known,
        deadline: Deadline,
        breaker: Breaker,
        wait: Callable[[float], object],
        entry: Entry = IN_TURN,
    ) -> None:
        """``wait(seconds)`` sleeps unless the process is stopping; ``entry`` says how the events come in."""
        self._connection = connection
        self._settings = settings
        self._known = known
        self._deadline = deadline
        self._breaker = breaker
        self._wait = wait
        self._entry = entry

    def run(self, items: Sequence[Item], *, positions: Mapping[Partition, Position], end: BatchEnd) -> None:
        """Carry the items through; what is done is noted in ``end``, also when this raises.

        Args:
            items: the batch, ascending per partition, all at or after the positions.
            positions: where the partitions stand.
            end: takes the result.

        Raises:
            LeaseLost: another epoch holds a partition.
            Unavailable: the database is away; whether the part in hand was committed is decided by a new take-over.
            ConnectionSpoiled: the connection must be replaced, then the rest can be run.
        """
        parts: list[list[Item]] = [list(items)]
        while parts:
            if len(parts) > 1 and self._settings.run.stopping():
                return
            part = [item for item in parts.pop() if end.is_open(item)]
            if part:
                now = {**positions, **end.positions}
                on_trial = next((item for item in part if item.trial is not None), None)
                rest = self._settle(part, now, end) if on_trial is None else self._judge(on_trial, part, now, end)
                parts.extend(reversed(rest))

    def _settle(self, part: list[Item], positions: Mapping[Partition, Position], end: BatchEnd) -> list[list[Item]]:
        """Run one part until it is committed (no parts left), or return the smaller parts to do instead."""
        savepoints = any(item.tries for item in part)
        for reruns in range(RERUNS_MAX + len(part) * 2):
            attempt = self._attempt(part, positions)
            try:
                counts = attempt.run(savepoints=savepoints)
            except (HandlerFailed, HandlerWaits) as failure:
                if self._after_handler(failure, end):
                    return [part]
                savepoints = True
            except StrangersFound:
                self._roll_back()
            except CutBefore as cut:
                self._roll_back()
                at = part.index(cut.item)
                return [part[:at], part[at:]]
            except (psycopg.Error, NotCommitted, ConnectionLost) as error:
                if reruns < RERUNS_MAX and _repeats_outcome(error):
                    # An import put it into its lane while the statement waited for that lane: the next try knows it.
                    self._roll_back()
                elif (rest := self._after_error(error, part, attempt, end)) is not None:
                    return rest
                self._pause_before_rerun(reruns)
            else:
                _note_done(part, positions, counts, end)
                return []
        raise Unavailable("database_unavailable", "a batch met too many passing faults")

    def _attempt(self, items: Sequence[Item], positions: Mapping[Partition, Position]) -> Attempt:
        return Attempt(
            self._connection,
            settings=self._settings,
            items=items,
            positions=positions,
            known=self._known,
            deadline=self._deadline,
            breaker=self._breaker,
            entry=self._entry,
        )

    def _after_handler(self, failure: HandlerFailed | HandlerWaits, end: BatchEnd) -> bool:
        """Count the try and clean up; True when the event's partition must wait."""
        waits = failure if isinstance(failure, HandlerWaits) else None
        if isinstance(failure, HandlerFailed):
            try:
                count_try(failure, self._breaker)
            except HandlerWaits as found:
                waits = found
            log_failure(failure)
        if waits is not None:
            self._make_wait(waits, end)
        if isinstance(failure, HandlerFailed) and failure.spoils:
            self._spoil()
            raise ConnectionSpoiled from failure
        self._roll_back()
        if self._connection.closed:
            raise ConnectionSpoiled from failure
        return waits is not None

    def _make_wait(self, waits: HandlerWaits, end: BatchEnd) -> None:
        """Hold the event's partition, or note that the events behind it shall decide."""
        item, fault = waits.item, waits.fault
        due = self._breaker.rehearsal_due(fault.handler or "", item.record.partition, now=time.monotonic())
        if due:
            item.trial = fault
        else:
            end.hold(item, _wait_reason(fault))

    def _judge(
        self, item: Item, part: list[Item], positions: Mapping[Partition, Position], end: BatchEnd
    ) -> list[list[Item]]:
        """Quarantine an event if one behind it goes well in the same handler, which is not broken then; else it waits.

        Raises:
            ConnectionSpoiled: the connection must be replaced; the event waits.
        """
        trial, item.trial = item.trial, None
        assert trial is not None, "only an event on trial is judged"
        behind = [one for one in part[part.index(item) + 1 :] if one.fault is None and self._meets(one, trial.handler)]
        try:
            if any(self._goes_well(one, positions) for one in behind[:REHEARSED_EVENTS_MAX]):
                item.fault = trial
                log.warning("handler_proved", handler=trial.handler, partition=str(item.record.partition))
        finally:
            if item.fault is None:
                end.hold(item, _wait_reason(trial))
        return [part]

    def _meets(self, item: Item, handler: str | None) -> bool:
        handlers = () if item.event is None else self._settings.handlers.for_type(item.event.type)
        return handler in [one.name for one in handlers]

    def _goes_well(self, item: Item, positions: Mapping[Partition, Position]) -> bool:
        """Rehearse an event: run its handlers once, and roll back."""
        went_well = False
        try:
            went_well = self._attempt([replace(item, envelope=None)], positions).rehearse()
        except HandlerFailed as failure:
            if failure.spoils:
                self._spoil()
        except (StrangersFound, psycopg.Error, ConnectionLost) as error:
            log.info("rehearsal_failed", reason=type(error).__name__)
        self._roll_back()
        if self._connection.closed:
            raise ConnectionSpoiled
        return went_well

    def _after_error(
        self, error: Exception, part: list[Item], attempt: Attempt, end: BatchEnd
    ) -> list[list[Item]] | None:
        """Decide after a failed statement: the parts to do instead, or None for the same part again."""
        if isinstance(error, ConnectionLost):
            end.suspect = error.item
        meaning = Meaning.RERUN if isinstance(error, NotCommitted) else meaning_of(error, ours=True)
        facts, operations = list(self._known.facts.claimed()), self._known.operations.asked()
        self._roll_back()
        if self._connection.closed or meaning is Meaning.AWAY:
            raise Unavailable("database_unavailable", first_line(error)) from error
        match meaning:
            case Meaning.FENCED:
                raise LeaseLost("fenced", "another epoch holds a partition of the batch") from error
            case Meaning.LANE:
                return [self._hold_closed_lanes(part, attempt, end)]
            case Meaning.GUARD:
                return self._halve(part, "handler_broke_transaction", detail="the handler rolled the batch back")
            case Meaning.DATA:
                return self._halve(part, "effect_refused", detail=first_line(error))
            case Meaning.FACT:
                look_up_facts(self._connection, self._known.facts, keys=facts)
                self._connection.rollback()
                return None
            case Meaning.CONFLICT:
                look_up_operations(self._connection, self._known.operations, ids=[one.id for one in operations])
                self._connection.rollback()
                return None
            case Meaning.RERUN if attempt.effects and isinstance(error, psycopg.errors.LockNotAvailable):
                held = find_held(self._connection, facts=facts, operations=operations)
                return [part] if _hold_those_who_wait(held, attempt, end) else None
            case _:
                log.info("batch_rerun", reason=first_line(error), records=len(part))
                return None

    def _halve(self, part: list[Item], code: str, *, detail: str) -> list[list[Item]]:
        """Find the event that is at fault by halving; alone, it gets the fault."""
        if len(part) > 1:
            middle = len(part) // 2
            return [part[:middle], part[middle:]]
        [item] = part
        names = NAMES_SEPARATOR.join(
            handler.name for handler in self._settings.handlers.for_type(item.event.type if item.event else "")
        )
        if item.fault is not None:
            if item.event is None:
                raise AssertionError(f"a quarantined record cannot be written: {detail}")
            if item.parked_as is not None:
                # It has its marker and its row already, and keeps them: its key is tried again later.
                return []
            # Even its marker cannot be written, so it is kept under its position alone.
            item.event = None
        item.fault = Fault(code, detail, names or None, blocks=True)
        return [part]

    def _hold_closed_lanes(self, part: list[Item], attempt: Attempt, end: BatchEnd) -> list[Item]:
        """Hold each partition from its first record that writes to a closed lane, or claims a fact while the topic may know whose it is."""
        rows = self._connection.execute(_SQL_LANES).fetchall()
        self._connection.rollback()
        states = {lane: state for lane, state, _ in rows}
        coming_back = {lane: state for lane, state in states.items() if state in COMES_BACK}
        for item, effects in attempt.effects:
            for lane in {outcome.lane for outcome in effects.outcomes}:
                state = states.get(lane, "missing")
                if state not in HANDS_OUT:
                    end.closed_lanes[lane] = state
                    end.hold(item, f"lane {lane} hands out no sequence: it is {state}")
            if effects.facts and coming_back:
                end.closed_lanes.update(coming_back)
                end.hold(item, f"facts are coming back from the topic: lanes {sorted(coming_back)}")
        return part

    def _pause_before_rerun(self, reruns: int) -> None:
        # Full jitter, so that two processes that met in a deadlock do not meet again.
        self._wait(random.uniform(0, min(RERUN_WAIT_SECONDS_MAX, _RERUN_WAIT_SECONDS * 2**reruns)))  # noqa: S311

    def _spoil(self) -> None:
        """End the query that a stopped handler left behind, or its locks would stay until it ends by itself."""
        self._known.roll_back()
        try:
            self._connection.cancel_safe(timeout=CANCEL_SECONDS_MAX)
        except psycopg.Error as error:
            log.info("cancel_failed", reason=first_line(error))
        finally:
            self._connection.close()

    def _roll_back(self) -> None:
        self._known.roll_back()
        try:
            if not self._connection.closed and self._connection.info.transaction_status != TransactionStatus.IDLE:
                self._connection.rollback()
        except psycopg.Error:
            # A connection that cannot roll back is lost; the server rolls back when it notices.
            self._connection.close()


def _hold_those_who_wait(held: Held, attempt: Attempt, end: BatchEnd) -> bool:
    """Hold each partition from its first record that asked for something held; True when there is one."""
    reasons = [(item, held.reason(effects)) for item, effects in attempt.effects] if held else []
    for item, reason in reasons:
        if reason is not None:
            end.hold(item, reason)
    return any(reason is not None for _, reason in reasons)


def _note_done(part: Sequence[Item], positions: Mapping[Partition, Position], counts: Counts, end: BatchEnd) -> None:
    for partition, item in {item.record.partition: item for item in part}.items():
        held = positions[partition]
        end.positions[partition] = Position(held.topic_id, held.epoch, item.record.offset + 1, fingerprint_of(item))
    end.counts.append(counts)


def _repeats_outcome(error: Exception) -> bool:
    """Tell whether an outcome stands already: by the name of our own index, which no statement of a handler can mean."""
    return isinstance(error, psycopg.errors.UniqueViolation) and (
        (error.diag.schema_name, error.diag.constraint_name) == ("onceflow", OUTCOME_INDEX)
    )


def _wait_reason(fault: Fault) -> str:
    return f"most recent events of handler {fault.handler} fail alike: {kind_of(fault)}"
