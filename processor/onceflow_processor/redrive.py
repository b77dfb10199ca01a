"""Redriving: the head of a parked key is tried again, whichever partitions this process has.

Rule: a try is counted in its own commit before it begins, so that an event that kills the process is found; whatever the try
does is written under the key's fence, so that trying twice at once, or by a process that slept, has one effect.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog
from psycopg import Connection

from onceflow_processor.admission import Fault, Item
from onceflow_processor.batch_runner import BatchEnd, BatchRunner, ConnectionSpoiled
from onceflow_processor.claim import Entry, redriven
from onceflow_processor.handler_failure import TRIES_MAX
from onceflow_processor.kept_records import headers_from, timestamp_ms_of
from onceflow_processor.lost_connections import LostConnections
from onceflow_processor.parking import Redriven
from onceflow_processor.position import Position
from onceflow_processor.records import Partition, Record
from onceflow_producer.failpoint import hit
from onceflow_schemas.event_record import EventRecord
from onceflow_schemas.failure import LeaseLost
from onceflow_schemas.identity import Identity
from onceflow_schemas.sql import queries
from onceflow_schemas.times import format_time

HEADS_MAX = 50
"""Heads that are tried in one turn, between two batches."""

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
class Head:
    """A key that this process has leased, and the event at its head."""

    key: Redriven
    item: Item
    topic_id: str
    open_tries: int


class Redrive:
    """The redrives of one process, in the worker's thread: deadlines of handlers are signals.

    ``connection`` gives a usable connection, ``runner`` makes a batch runner over it, ``note`` takes what was committed, and
    ``count`` how each try ended: ``done``, ``parked``, ``quarantined``, or ``open`` when it came to no end.
    """

    def __init__(
        self,
        *,
        owner: str,
        lease_seconds: float,
        connection: Callable[[], Connection[Any]],
        runner: Callable[[Connection[Any], Entry], BatchRunner],
        note: Callable[[BatchEnd], None],
        count: Callable[[str], object] = lambda _end: None,
        stopping: Callable[[], bool],
    ) -> None:
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._connection = connection
        self._runner = runner
        self._note = note
        self._count = count
        self._stopping = stopping
        self._lost = LostConnections()
        self._unfinished: Redriven | None = None
        self._due_at = 0.0

    def turn(self) -> None:
        """Try heads that are due, bounded in number and time.

        Raises:
            psycopg.Error, Unavailable: the database is away; the key in hand is given back in the next turn.
        """
        begun = time.monotonic()
        if begun < self._due_at:
            return
        self._give_back()
        for _ in range(HEADS_MAX):
            if self._stopping() or time.monotonic() > begun + TURN_SECONDS_MAX:
                return
            if not self._try_next():
                self._due_at = time.monotonic() + LOOK_SECONDS
                return

    def _try_next(self) -> bool:
        """Lease a key and try its head; False when none is due."""
        connection = self._connection()
        with connection.transaction():
            row = connection.execute(
                _SQL["claim_key"], {"owner": self._owner, "lease_seconds": self._lease_seconds}
            ).fetchone()
            if row is not None and row[2] is None:
                # Its head left between the look and the lease.
                key = {"order_key": row[0]}
                connection.execute(_SQL["key_next"], key)
                connection.execute(_SQL["key_done"], key)
        if row is None:
            return False
        if row[2] is not None:
            self._try(_head(row))
        return True

    def _try(self, head: Head) -> None:
        item, end = head.item, BatchEnd()
        self._unfinished = head.key
        hit("redrive.after_claim")
        if head.open_tries > DEATHS_MAX:
            detail = f"the process ended in {head.open_tries - 1} tries of this event from parking"
            item.fault = Fault("process_killed", detail, blocks=True)
        self._lost.judge(item)
        try:
            self._run(head, end)
        finally:
            if end.suspect is not None:
                self._lost.note(item)
            self._count(_ending(end))
            self._note(end)
        if end.positions:
            self._lost.forget(item)
        else:
            self._give_back()
        self._unfinished = None

    def _run(self, head: Head, end: BatchEnd) -> None:
        record = head.item.record
        positions = {record.partition: Position(head.topic_id, 0, record.offset, None)}
        for _ in range(TRIES_MAX + 1):
            # A handler that was stopped in the middle of a query costs a try and the connection.
            if self._stopping() or not end.is_open(head.item):
                return
            try:
                runner = self._runner(self._connection(), redriven(head.key))
                runner.run([head.item], positions=positions, end=end)
            except ConnectionSpoiled:
                continue
            except LeaseLost:
                log.warning("redrive_fenced", event_id=head.key.identity.event_id, fence=head.key.fence)
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
                    **key.identity._asdict(),
                    "order_key": key.order_key,
                    "fence": key.fence,
                    "owner": self._owner,
                    "wait_seconds": GIVE_BACK_SECONDS,
                },
            )
        self._unfinished = None


def _ending(end: BatchEnd) -> str:
    if not end.counts:
        return "open"
    [counts] = end.counts
    if counts.parked:
        return "parked"
    return "quarantined" if counts.quarantined else "done"


def _head(row: tuple[Any, ...]) -> Head:
    """Return what ``claim_key`` has found."""
    (order_key, fence, account, mode, event_id, attempts, open_tries, topic_id, number, offset, topic, key, value, body,
     headers, record_time, event_type, object_id, created, received_at, body_sha256) = row  # fmt: skip
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
    item = Item(record, event, order_key=order_key, tries=min(attempts, TRIES_MAX) - 1, unwrapped=body)
    return Head(Redriven(order_key, identity, fence, attempts), item, topic_id, open_tries)
