"""Redriving: the head of a parked key is tried again, whichever partitions this process has.

Rule: a try is counted in its own commit before it begins, so that an event that kills the process is found; whatever the try
does is written under the key's fence, so that trying twice at once, or by a process that slept, has one effect.  Events behind
a head that were never tried come along in its transaction; one in whose company a process died is tried alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from psycopg import Connection

from onceflow_processor.admission import Fault, Item
from onceflow_processor.batch_runner import BatchEnd, BatchRunner, ConnectionSpoiled
from onceflow_processor.claim import Entry, event_of, redriven
from onceflow_processor.handler_failure import TRIES_MAX
from onceflow_processor.handlers import Handlers
from onceflow_processor.kept_records import headers_from, identity_columns, timestamp_ms_of
from onceflow_processor.lost_connections import LostConnections
from onceflow_processor.parking import Redriven, handler_missing
from onceflow_processor.position import Position
from onceflow_processor.records import Partition, Record
from onceflow_producer.failpoint import hit
from onceflow_schemas.event_record import EventRecord
from onceflow_schemas.failure import LeaseLost
from onceflow_schemas.identity import Identity
from onceflow_schemas.sql import queries
from onceflow_schemas.times import format_time

TRIES_IN_TURN_MAX = 50
"""Transactions of one turn, between two batches."""

HEADS_MAX = 50
"""Events of one key in one transaction; it begins with one and doubles while they are fast."""

HEADS_BYTES_MAX = 4_000_000
FAST_SECONDS = 0.2
"""A transaction that takes longer makes the next one half as large: live events wait meanwhile."""

TURN_SECONDS_MAX = 1.0
"""After so long no further head is begun in a turn: live events wait meanwhile."""

LOOK_SECONDS = 0.5
"""So often it is asked whether a key is due when none was."""

GIVE_BACK_SECONDS = 2.0
"""So long a key waits whose head could be neither done nor judged, as where a lane hands out no sequence."""

DEATHS_MAX = 3
"""Processes that may end in tries of one event before it is quarantined without a further one."""

_SQL = queries("parking")

log = structlog.get_logger("onceflow.processor")


@dataclass(frozen=True, slots=True)
class Heads:
    """A key that this process has leased, and the events at its head, all of one partition.

    ``open_tries`` are of the first, and ``failed_in`` names the handlers that it failed in.
    """

    key: Redriven
    items: list[Item]
    topic_id: str
    open_tries: int
    failed_in: str | None


class Redrive:
    """The redrives of one process, in the worker's thread: deadlines of handlers are signals.

    ``connection`` gives a usable connection, ``runner`` makes a batch runner over it, ``note`` takes what was committed, and
    ``count`` how many tries ended how: ``done``, ``parked``, ``quarantined``, or ``open`` when it came to no end.
    """

    def __init__(
        self,
        *,
        owner: str,
        lease_seconds: float,
        connection: Callable[[], Connection[Any]],
        runner: Callable[[Connection[Any], Entry], BatchRunner],
        handlers: Handlers,
        note: Callable[[BatchEnd], None],
        count: Callable[[str, int], object] = lambda _end, _events: None,
        stopping: Callable[[], bool],
    ) -> None:
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._connection = connection
        self._runner = runner
        self._handlers = handlers
        self._note = note
        self._count = count
        self._stopping = stopping
        self._lost = LostConnections()
        self._unfinished: Redriven | None = None
        self._due_at = 0.0
        self._heads_max = 1

    def turn(self) -> None:
        """Try heads that are due, bounded in number and time.

        Raises:
            psycopg.Error, Unavailable: the database is away; the key in hand is given back in the next turn.
        """
        begun = time.monotonic()
        if begun < self._due_at:
            return
        self._give_back()
        for _ in range(TRIES_IN_TURN_MAX):
            if self._stopping() or time.monotonic() > begun + TURN_SECONDS_MAX:
                return
            if not self._try_next():
                self._due_at = time.monotonic() + LOOK_SECONDS
                return

    def _try_next(self) -> bool:
        """Lease a key and try its head; False when none is due."""
        connection = self._connection()
        with connection.transaction():
            lease = {"owner": self._owner, "lease_seconds": self._lease_seconds}
            leased = connection.execute(_SQL["claim_key"], lease).fetchone()
            if leased is None:
                return False
            key = {"order_key": leased[0]}
            limits = {"heads_max": self._heads_max, "bytes_max": HEADS_BYTES_MAX}
            # A statement of its own: what was put in front before the key's row was locked is seen.
            rows = connection.execute(_SQL["claim_heads"], {**key, **limits}).fetchall()
            if not rows:
                # All of them left between the look and the lease.
                connection.execute(_SQL["key_done"], key)
        if rows:
            self._try(_heads(rows, order_key=leased[0], fence=leased[1]))
        return True

    def _try(self, heads: Heads) -> None:
        items, end, begun = heads.items, BatchEnd(), time.monotonic()
        self._unfinished = heads.key
        hit("redrive.after_claim")
        if heads.open_tries > DEATHS_MAX:
            detail = f"the process ended in {heads.open_tries - 1} tries of this event from parking"
            items[0].fault = Fault("process_killed", detail, blocks=True)
        else:
            names = (handler.name for handler in self._handlers.for_type(event_of(items[0]).type))
            items[0].fault = handler_missing(heads.failed_in, names)
        for item in items:
            self._lost.judge(item)
        try:
            self._run(heads, end)
        finally:
            if end.suspect is not None:
                self._lost.note(end.suspect)
            for ending, events in _endings(end).items():
                self._count(ending, events)
            self._note(end)
        for item in items:
            # Not by the position: heads of other keys stand further on in the same partition.
            if _is_done(item, end):
                self._lost.forget(item)
        if any(not _is_done(item, end) for item in items):
            self._give_back()
        self._unfinished = None
        is_fast = time.monotonic() - begun < FAST_SECONDS
        self._heads_max = min(HEADS_MAX, len(items) * 2) if is_fast else max(1, len(items) // 2)

    def _run(self, heads: Heads, end: BatchEnd) -> None:
        first = heads.items[0].record
        positions = {first.partition: Position(heads.topic_id, 0, first.offset, None)}
        for _ in range(TRIES_MAX + 1):
            # A handler that was stopped in the middle of a query costs a try and the connection.
            items = [item for item in heads.items if end.is_open(item)]
            if self._stopping() or not items:
                return
            try:
                runner = self._runner(self._connection(), redriven(heads.key))
                runner.run(items, positions={**positions, **end.positions}, end=end)
            except ConnectionSpoiled:
                continue
            except LeaseLost:
                log.warning("redrive_fenced", event_id=heads.key.heads[0].event_id, fence=heads.key.fence)
                return

    def _give_back(self) -> None:
        """Let somebody try the key again soon, unless somebody has it already."""
        if self._unfinished is None:
            return
        key = self._unfinished
        connection = self._connection()
        with connection.transaction():
            connection.execute(
                _SQL["give_key_back"],
                {
                    **identity_columns(key.heads),
                    "order_key": key.order_key,
                    "fence": key.fence,
                    "owner": self._owner,
                    "wait_seconds": GIVE_BACK_SECONDS,
                },
            )
        self._unfinished = None


def _is_done(item: Item, end: BatchEnd) -> bool:
    position = end.positions.get(item.record.partition)
    return position is not None and item.record.offset < position.next_offset


def _endings(end: BatchEnd) -> dict[str, int]:
    if not end.counts:
        return {"open": 1}
    parked = sum(counts.parked for counts in end.counts)
    quarantined = sum(sum(counts.quarantined.values()) for counts in end.counts)
    done = sum(counts.processed + counts.ignored for counts in end.counts)
    if not (parked or quarantined or done):
        # Somebody else had done it.
        done = 1
    return {
        name: events for name, events in (("done", done), ("parked", parked), ("quarantined", quarantined)) if events
    }


def _heads(rows: Sequence[tuple[Any, ...]], *, order_key: str, fence: int) -> Heads:
    """Return what ``claim_heads`` has found."""
    items = [_item(row, order_key=order_key) for row in rows]
    open_tries, topic_id, failed_in = rows[0][4], rows[0][5], rows[0][19]
    identities = tuple(item.parked_as for item in items if item.parked_as is not None)
    return Heads(Redriven(order_key, identities, fence), items, topic_id, open_tries, failed_in)


def _item(row: tuple[Any, ...], *, order_key: str) -> Item:
    (account, mode, event_id, attempts, _, _, number, offset, topic, key, value, body,
     headers, record_time, event_type, object_id, created, received_at, body_sha256, _) = row  # fmt: skip
    identity = Identity(account, mode, event_id)
    record = Record(
        Partition(topic, number), offset, timestamp_ms_of(record_time), key, value, headers_from(headers), generation=0
    )
    event = EventRecord(
        identity=identity,
        type=event_type,
        object_id=object_id,
        created_text=None if created is None else format_time(created),
        received_at_text=format_time(received_at),
        received_at=received_at,
        endpoint="",
        source="",
        traceparent=None,
        body_sha256=body_sha256,
        # It was vouched for, and its key looked at, when it was admitted.
        trust="parked",
    )
    return Item(
        record,
        event,
        order_key=order_key,
        tries=min(attempts, TRIES_MAX) - 1,
        unwrapped=body,
        parked_as=identity,
        attempts=attempts,
    )
