"""The worker: the only thread that touches the database.  It takes partitions over and runs the batches.

Rule: what it holds in memory about a partition is worth nothing without the fence in PostgreSQL; whenever it is in
doubt (a lost connection, a failed fence) it drops what it holds and takes the partition over again.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import structlog
from psycopg import Connection

from onceflow_processor.admission import Item, Rules
from onceflow_processor.attempt import AttemptSettings
from onceflow_processor.batch_runner import BatchEnd, BatchRunner, ConnectionSpoiled
from onceflow_processor.breaker import Breaker
from onceflow_processor.careful import Place, run_with_care
from onceflow_processor.database import first_line
from onceflow_processor.deadline import Deadline
from onceflow_processor.handoff import Assigned, Done, Handoff, Notice, Read, Renew, Revoked, Stopped
from onceflow_processor.known import Known
from onceflow_processor.lost_connections import LostConnections
from onceflow_processor.metrics import ProcessorMetrics
from onceflow_processor.position import Position, Stop
from onceflow_processor.quarantine_log import tell_kept
from onceflow_processor.records import Partition
from onceflow_processor.sqlstates import pooler_fault
from onceflow_processor.takeover import Takeover
from onceflow_producer.failpoint import hit
from onceflow_schemas.failure import LeaseLost, Unavailable

BATCH_WAIT_SECONDS = 0.2
RECONNECT_SECONDS_MAX = 5.0
HOLD_SECONDS = 2.0
FENCED_WAIT_SECONDS_MAX = 10.0
DECISIONS_SECONDS = 2.0
"""So often it is asked whether a person has set a position: of a partition that is held, or of one that stands still."""

_RECONNECT_SECONDS = 0.1
_FENCED_WAIT_SECONDS = 0.5

log = structlog.get_logger("onceflow.processor")


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What the worker needs besides its connection; sizes in records and bytes."""

    rules: Rules
    attempt: AttemptSettings
    owner: str
    batch_records_max: int
    batch_bytes_max: int


@dataclass(slots=True)
class _Held:
    position: Position
    generation: int
    careful_records: int


class Worker:
    """Runs until ``stopping``.

    ``open_database`` connects and checks everything that a new connection must meet; ``check_lanes`` compares the
    lanes with the outcome topic again and tells how many hand out no sequence; ``wake`` tells the workers of operations that
    there is something to do.
    """

    def __init__(
        self,
        handoff: Handoff,
        *,
        settings: WorkerSettings,
        open_database: Callable[[], Connection[Any]],
        check_lanes: Callable[[Connection[Any]], int],
        deadline: Deadline,
        metrics: ProcessorMetrics,
        stopping: Callable[[], bool],
        wait: Callable[[float], object],
        wake: Callable[[], object] = lambda: None,
    ) -> None:
        self._handoff = handoff
        self._settings = settings
        self._open_database = open_database
        self._check_lanes = check_lanes
        self._deadline = deadline
        self._metrics = metrics
        self._stopping = stopping
        self._wait = wait
        self._wake = wake
        self._known = Known()
        self._breaker = Breaker()
        self._connection: Connection[Any] | None = None
        self._notices: deque[Notice] = deque()
        self._held: dict[Partition, _Held] = {}
        self._lane_check_at = float("inf")
        self._renew_at: dict[Partition, tuple[float, Renew]] = {}
        self._fenced: dict[Partition, int] = {}
        self._doubted: dict[Partition, int] = {}
        self._stopped: dict[Partition, tuple[str, str]] = {}
        self._decisions_at = 0.0
        self._failures = 0
        self._lost = LostConnections()
        self._outlived: set[Place] = set()

    def run(self, connection: Connection[Any]) -> None:
        """Work until the process is stopping, then release what is held.

        Args:
            connection: a checked one to begin with.
        """
        self._connection = connection
        while not self._stopping():
            try:
                self._turn(self._connected())
                self._failures = 0
            except (Unavailable, psycopg.Error) as error:
                self._drop_connection(error)
        self._release()

    def _turn(self, connection: Connection[Any]) -> None:
        self._renew_due(connection)
        self._handle_notices(connection)
        self._follow_decisions(connection)
        taken = self._handoff.take_batch(
            records_max=self._settings.batch_records_max,
            bytes_max=self._settings.batch_bytes_max,
            wait_seconds=BATCH_WAIT_SECONDS,
        )
        try:
            items = [item for item in taken if self._is_held(item)]
            for item in items:
                self._lost.judge(item)
            if items:
                hit("processor.before_batch")
                self._run_batch(items)
        finally:
            self._handoff.finish_batch()

    def _handle_notices(self, connection: Connection[Any]) -> None:
        takeover = self._takeover(connection)
        self._notices.extend(self._handoff.take_notices())
        while self._notices:
            # It leaves the queue only when it is done: a database that goes away meanwhile must not lose it.
            match self._notices[0]:
                case Assigned() as assigned:
                    self._take_over(takeover, assigned)
                case Revoked(partition, lost):
                    self._give_up(takeover, partition, lost=lost)
                case Stopped(partition, stop):
                    self._stand_still(takeover, partition, stop)
            self._notices.popleft()

    def _connected(self) -> Connection[Any]:
        """Return the connection, after opening a new one where it is gone; then all partitions are taken over anew."""
        if self._connection is None or self._connection.closed:
            self._connection = self._open_database()
            self._known.forget_all()
            self._metrics.database_up.set(1)
            log.info("database_connected")
            for partition in list(self._held):
                self._forget(partition)
                self._handoff.put_command(Renew(partition))
        return self._connection

    def _drop_connection(self, error: Exception) -> None:
        """Wait with full jitter and try again; the consume thread pauses meanwhile by itself, for want of room.

        Raises:
            Misconfigured: ``settings_invalid``: a pooler that prepared statements cannot pass.
        """
        fault = pooler_fault(error)
        if fault is not None:
            raise fault from error
        self._metrics.database_up.set(0)
        self._metrics.trouble.labels("database_away").inc()
        log.warning("database_away", reason=first_line(error), failures=self._failures)
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        limit = min(RECONNECT_SECONDS_MAX, _RECONNECT_SECONDS * 2 ** min(self._failures, 10))
        self._failures += 1
        self._wait(random.uniform(limit / 2, limit))  # noqa: S311 - jitter needs no secrecy.

    def _is_held(self, item: Item) -> bool:
        """Tell whether a record belongs to a position that is held now."""
        record = item.record
        held = self._held.get(record.partition)
        return held is not None and held.generation == record.generation and record.offset >= held.position.next_offset

    def _note_suspect(self, end: BatchEnd) -> None:
        self._lost.forget_done(end.positions)
        if end.suspect is not None:
            record, times = end.suspect.record, self._lost.note(end.suspect)
            log.warning(
                "connection_lost_in_handler", partition=str(record.partition), offset=record.offset, times=times
            )

    def _run_batch(self, items: list[Item]) -> None:
        begun = time.monotonic()
        self._metrics.batch_records.observe(len(items))
        end = BatchEnd()
        try:
            while items and not self._stopping():
                self._run_once(items, end)
                items = [item for item in items if end.is_open(item) and item.record.partition in self._held]
        finally:
            self._note(end)
            self._note_suspect(end)
        self._hold(end)
        self._metrics.batch_seconds.observe(time.monotonic() - begun)

    def _run_once(self, items: list[Item], end: BatchEnd) -> None:
        connection = self._connection
        if connection is None or connection.closed:
            # A handler was stopped in the middle of a query.  The fence still protects what is held.
            connection = self._connection = self._open_database()
        runner = BatchRunner(
            connection,
            settings=self._settings.attempt,
            known=self._known,
            deadline=self._deadline,
            breaker=self._breaker,
            wait=self._wait,
        )
        positions = {partition: held.position for partition, held in self._held.items()}
        with_care = [item for item in items if self._held[item.record.partition].careful_records > 0]
        try:
            if with_care:
                run_with_care(
                    runner,
                    with_care,
                    connection=connection,
                    positions=positions,
                    end=end,
                    outlived=self._outlived,
                    stopping=self._stopping,
                )
            rest = [item for item in items if self._held[item.record.partition].careful_records == 0]
            if rest:
                runner.run(rest, positions={**positions, **end.positions}, end=end)
        except LeaseLost:
            self._note(end)
            self._after_fenced(connection)
        except ConnectionSpoiled:
            self._note(end)

    def _note(self, end: BatchEnd) -> None:
        """Take over the new positions, tell the consume thread for the lag tools, and count."""
        for partition, position in end.positions.items():
            held = self._held.get(partition)
            if held is not None:
                held.careful_records = max(0, held.careful_records - (position.next_offset - held.position.next_offset))
                held.position = position
                self._fenced.pop(partition, None)
            self._metrics.waits(partition, is_waiting=False)
        if end.positions:
            done = {partition: position.next_offset for partition, position in end.positions.items()}
            self._handoff.put_command(Done(done))
        for counts in end.counts:
            self._metrics.committed(counts)
            tell_kept(counts)
            if counts.operations or counts.hints:
                self._wake()
        end.counts.clear()

    def _hold(self, end: BatchEnd) -> None:
        """Partitions that cannot go on wait a while, and say why; closed lanes are compared again before that."""
        due = time.monotonic() + HOLD_SECONDS
        if end.closed_lanes:
            self._metrics.lanes_closed.set(len(end.closed_lanes))
            self._lane_check_at = due
        for partition, reason in end.reasons.items():
            log.error("partition_waits", partition=str(partition), reason=reason)
            self._metrics.trouble.labels("partition_waits").inc()
            self._metrics.waits(partition, is_waiting=True)
            held = self._held.get(partition)
            if held is not None and self._connection is not None:
                self._takeover(self._connection).wait(partition, held.position, reason=reason)
            self._forget(partition)
            self._renew_at[partition] = (due, Renew(partition))

    def _takeover(self, connection: Connection[Any]) -> Takeover:
        return Takeover(connection, cluster_id=self._settings.attempt.cluster_id, owner=self._settings.owner)

    def _after_fenced(self, connection: Connection[Any]) -> None:
        """Drop what somebody else has taken; where Kafka still gives it to us, prove membership before trying again."""
        positions = {partition: held.position for partition, held in self._held.items()}
        takeover = self._takeover(connection)
        kept = takeover.still_held(positions)
        for partition in set(positions) - kept:
            times = self._fenced[partition] = self._fenced.get(partition, 0) + 1
            limit = min(FENCED_WAIT_SECONDS_MAX, _FENCED_WAIT_SECONDS * 2**times)
            self._metrics.trouble.labels("fenced").inc()
            log.warning("fenced", partition=str(partition), times=times)
            renew = Renew(partition, prove=True, next_offset=positions[partition].next_offset)
            self._renew_at[partition] = (time.monotonic() + random.uniform(limit / 2, limit), renew)  # noqa: S311
            self._forget(partition)

    def _renew_due(self, connection: Connection[Any]) -> None:
        now = time.monotonic()
        if self._lane_check_at <= now:
            self._metrics.lanes_closed.set(self._check_lanes(connection))
            self._lane_check_at = float("inf")
        for partition, (due, renew) in list(self._renew_at.items()):
            if due <= now:
                del self._renew_at[partition]
                self._handoff.put_command(renew)

    def _follow_decisions(self, connection: Connection[Any]) -> None:
        """Take partitions over anew whose position a person has set; an idle one would not notice by a failed fence."""
        now = time.monotonic()
        if now < self._decisions_at:
            return
        self._decisions_at = now + DECISIONS_SECONDS
        if self._held:
            self._after_fenced(connection)
        if self._stopped:
            topic_ids = {partition: topic_id for partition, (topic_id, _) in self._stopped.items()}
            for partition in self._takeover(connection).decided(topic_ids):
                _, code = self._stopped.pop(partition)
                self._metrics.stopped.labels(partition.topic, str(partition.number), code).set(0)
                log.info("partition_decided", partition=str(partition), code=code)
                self._handoff.put_command(Renew(partition))

    def _take_over(self, takeover: Takeover, assigned: Assigned) -> None:
        self._renew_at.pop(assigned.partition, None)
        taken = takeover.take(assigned, seen_offset=self._doubted.pop(assigned.partition, None))
        hit("processor.after_take_over")
        if taken.in_doubt and taken.position is not None:
            self._forget(assigned.partition)
            self._doubted[assigned.partition] = taken.position.next_offset
            self._handoff.put_command(Renew(assigned.partition))
            return
        if isinstance(taken.verdict, Stop):
            self._tell_stop(assigned.partition, taken.verdict)
            self._forget(assigned.partition)
            self._stopped[assigned.partition] = (assigned.topic_id, taken.verdict.code)
            return
        if taken.position is not None:
            if taken.position.next_offset >= assigned.bounds.high:
                # A person may have set it behind the event that it waited for: no batch would say so.
                self._metrics.waits(assigned.partition, is_waiting=False)
            careful_records = self._settings.batch_records_max if taken.needs_care else 0
            if careful_records:
                log.warning("careful_mode", partition=str(assigned.partition), records=careful_records)
            self._held[assigned.partition] = _Held(taken.position, assigned.generation, careful_records)
            self._metrics.partitions.set(len(self._held))
            self._handoff.put_command(Read(assigned.partition, assigned.generation, taken.verdict))

    def _stand_still(self, takeover: Takeover, partition: Partition, stop: Stop) -> None:
        held = self._held.get(partition)
        if held is not None:
            takeover.stop(partition, held.position, stop=stop)
            self._tell_stop(partition, stop)
            self._forget(partition)
            self._stopped[partition] = (held.position.topic_id, stop.code)

    def _tell_stop(self, partition: Partition, stop: Stop) -> None:
        self._metrics.stopped.labels(partition.topic, str(partition.number), stop.code).set(1)
        self._metrics.waits(partition, is_waiting=False)
        log.error("partition_stopped", partition=str(partition), code=stop.code, detail=stop.detail)

    def _give_up(self, takeover: Takeover, partition: Partition, *, lost: bool) -> None:
        self._renew_at.pop(partition, None)
        self._fenced.pop(partition, None)
        if stopped := self._stopped.pop(partition, None):
            self._metrics.stopped.labels(partition.topic, str(partition.number), stopped[1]).set(0)
        self._metrics.waits(partition, is_waiting=False)
        held = self._held.get(partition)
        if held is not None:
            self._forget(partition)
            if not lost:
                takeover.release({partition: held.position})

    def _forget(self, partition: Partition) -> None:
        self._held.pop(partition, None)
        self._metrics.partitions.set(len(self._held))

    def _release(self) -> None:
        """The clean end; when the database is away, the next owner finds the partitions unclean, which is true."""
        connection = self._connection
        if connection is None or connection.closed:
            return
        takeover = self._takeover(connection)
        try:
            takeover.release({partition: held.position for partition, held in self._held.items()})
        except psycopg.Error as error:
            log.warning("release_failed", reason=type(error).__name__)
        finally:
            connection.close()
