"""Whether an event can be handled now, or waits for a read at Stripe; and what each of its handlers meets then.

Rule: pure.  An event waits for one read at a time, and with what was read it is decided anew.  Without ``read_objects``
nothing here changes anything: the later record of a tie wins, lines stay as they came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from onceflow_processor.admission import Fault
from onceflow_processor.event import Event
from onceflow_processor.event_reads import (
    Reading,
    Readings,
    is_gone,
    need_of_lines,
    need_of_thin_event,
    need_of_tie,
    problem_of,
    state_of,
    whole_thin_event,
    with_lines,
    with_object,
)
from onceflow_processor.guards import Placed
from onceflow_schemas.envelope import Envelope
from onceflow_schemas.event_record import EventRecord
from onceflow_schemas.failure_course import Course
from onceflow_schemas.identity import Identity
from onceflow_schemas.object_order import Order, is_deletion
from onceflow_schemas.object_reads import ReadKind, ReadNeed

if TYPE_CHECKING:
    from onceflow_processor.handlers import Handler

NOT_NEWER = frozenset({Order.OLDER, Order.SAME})
_NOTHING: Readings = {}


class ReadResults:
    """What was read for the events of a transaction; ``enabled`` is the setting ``processor.read_objects``."""

    def __init__(self) -> None:
        self.enabled = False
        self._found: Mapping[Identity, Readings] = {}

    def begin(self, found: Mapping[Identity, Readings], *, enabled: bool) -> None:
        """A transaction has begun."""
        self._found, self.enabled = found, enabled

    def of(self, identity: Identity) -> Readings:
        """Return what was read for an event."""
        return self._found.get(identity, _NOTHING)


def event_met(
    record: EventRecord, envelope: Envelope, *, raw: bytes, is_thin: bool, reads: ReadResults
) -> Event | Fault:
    """Return the event of a record whose body could be read, or why it cannot be handled (yet).

    Args:
        record: what its headers say.
        envelope: of its body.
        raw: the body.
        is_thin: it has to be read at Stripe first.
        reads: of the transaction.
    """
    assert envelope.created is not None, "a body without a problem has a time"
    assert envelope.body is not None, "and a content"
    event = Event(
        identity=record.identity,
        type=record.type,
        created=envelope.created,
        received_at=record.received_at,
        api_version=envelope.api_version,
        body=envelope.body,
        raw=raw,
        text_replaced=envelope.replaced,
    )
    return thin_event(event, reads.of(event.identity)) if is_thin else event


def thin_event(event: Event, found: Readings) -> Event | Fault:
    """Return a thin event as it can be handled, or why it cannot (yet).

    Args:
        event: with the thin body.
        found: what was read for it.
    """
    reading = found.get((ReadKind.THIN_EVENT, None))
    if reading is None:
        need = need_of_thin_event(event.identity)
        return Fault("unsupported_kind", "the thin event has no usable id") if need is None else _waits(need)
    if reading.result == "failed":
        return _failed(reading)
    whole = whole_thin_event(event, reading)
    problem = problem_of(whole)
    return whole if problem is None else Fault(*problem)


def settle_place(placed: Placed | None, event: Event, *, handlers: Sequence[Handler], found: Readings) -> Placed | None:
    """Return an event's place with what was read: a tie is decided by it, and an object that is gone has no newer state.

    A deletion tells the end by itself, so it needs no object.
    """
    if placed is None or is_deletion(placed.offered) or placed.order in NOT_NEWER:
        return placed
    if is_gone(event):
        return replace(placed, order=Order.OLDER)
    reading = found.get((ReadKind.OBJECT, event.api_version))
    if placed.order is not Order.TIE or reading is None or not _writes_state(handlers):
        return placed
    if reading.result == "gone":
        return replace(placed, order=Order.OLDER)
    if reading.result != "whole":
        return placed
    offered = state_of(with_object(event, reading))
    same = placed.applied is not None and placed.applied.digest == offered.digest
    return replace(placed, offered=offered, order=Order.SAME if same else Order.NEWER, is_read=True)


def fault_before(event: Event, placed: Placed | None, *, handlers: Sequence[Handler], found: Readings) -> Fault | None:
    """Return what an event has to wait for before its handlers run, or why they never can; None when they may.

    Args:
        event: whole, if it is a thin one.
        placed: as ``settle_place`` returns it.
        handlers: of its type.
        found: what was read for it.
    """
    if placed is not None and placed.order is Order.TIE and not is_deletion(placed.offered) and _writes_state(handlers):
        fault = _wanting(need_of_tie(event), found)
        if fault is not None:
            return fault
    for handler in handlers:
        if placed is not None and handler.order == "latest" and placed.order in NOT_NEWER:
            continue
        met = met_by(handler, event, placed=placed, found=found)
        if (problem := problem_of(met) if met.object_was_read else None) is not None:
            return Fault(*problem)
        if handler.lines == "all" and (fault := _wanting(need_of_lines(met), found)) is not None:
            return fault
    return None


def met_by(handler: Handler, event: Event, *, placed: Placed | None, found: Readings) -> Event:
    """Return the event as a handler meets it: the state that was read for one that writes state, all lines for one that asks."""
    if placed is not None and placed.is_read and handler.order == "latest":
        event = with_object(event, found[ReadKind.OBJECT, event.api_version])
    lines = found.get((ReadKind.LINES, event.api_version))
    if handler.lines == "all" and lines is not None and lines.result == "whole" and need_of_lines(event) is not None:
        event = with_lines(event, lines)
    return event


def _wanting(need: ReadNeed | None, found: Readings) -> Fault | None:
    """What is there, gone or too much to be whole is met as it is."""
    reading = None if need is None else found.get((need.kind, need.api_version))
    if need is None or (reading is not None and reading.result != "failed"):
        return None
    return _waits(need) if reading is None else _failed(reading)


def _waits(need: ReadNeed) -> Fault:
    detail = f"{need.kind.value} {need.object_id} is to be read at Stripe"
    return Fault("reading", detail, course=Course.PARK, blocks=True, wait_seconds=0.0, read=need)


def _failed(reading: Reading) -> Fault:
    return Fault("read_failed", reading.detail or "it could not be read", blocks=True)


def _writes_state(handlers: Sequence[Handler]) -> bool:
    return any(handler.order == "latest" for handler in handlers)
