"""The worker: the only thread that touches the database.  It takes partitions over and runs the batches.

Rule: what it holds in memory about a partition is worth nothing without the fence in PostgreSQL; whenever it is in
doubt (a lost connection, a failed fence) it drops what it holds and takes the partition over again.
"""

from __future__ import annotations

import random
import time
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
from onceflow_processor.claim import IN_TURN, Entry
from onceflow_processor.database import first_line
from onceflow_processor.deadline import Deadline
from onceflow_processor.handoff import Handoff
from onceflow_processor.known import Known
from onceflow_processor.lost_connections import LostConnections
from onceflow_processor.metrics import ProcessorMetrics
from onceflow_processor.parked_gauges import ParkedGauges
from onceflow_processor.partitions_held import HOLD_SECONDS, PartitionsHeld
from onceflow_processor.quarantine_log import tell_kept
from onceflow_processor.readmission import Readmission
from onceflow_processor.redrive import Redrive
from onceflow_processor.sqlstates import pooler_fault
from onceflow_processor.version_log import VersionLog
from onceflow_producer.failpoint import hit
from onceflow_schemas.failure import LeaseLost, Unavailable

BATCH_WAIT_SECONDS = 0.2
RECONNECT_SECONDS_MAX = 5.0

_RECONNECT_SECONDS = 0.1

log = structlog.get_logger("onceflow.processor")


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What the worker needs besides its connection; sizes in records and bytes."""

    rules: Rules
    attempt: AttemptSettings
    owner: str
    batch_records_max: int
    batch_bytes_max: int
    topics: tuple[str, ...]
    redrive_lease_seconds: float = 60.0


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
        self._versions = VersionLog()
        self._stopping = stopping
        self._wait = wait
        self._wake = wake
        self._known = Known()
        self._breaker = Breaker()
        self._connection: Connection[Any] | None = None
        self._partitions = PartitionsHeld(
            handoff,
            cluster_id=settings.attempt.cluster_id,
            owner=settings.owner,
            careful_records=settings.batch_records_max,
            metrics=metrics,
        )
        self._lane_check_at = float("inf")
        self._failures = 0
        self._lost = LostConnections()
        self._outlived: set[Place] = set()
        self._redrive = Redrive(
            owner=settings.owner,
            lease_seconds=settings.redrive_lease_seconds,
            connection=self._usable_connection,
            # The breaker of live events hears nothing of redrives: each of them waits for itself alone.
            runner=lambda connection, entry: self._runner(connection, entry=entry, breaker=Breaker()),
            handlers=settings.attempt.handlers,
            note=self._note_redriven,
            count=lambda end, events: metrics.redrives.labels(end).inc(events),
            stopping=stopping,
        )
        self._readmission = Readmission(
            rules=settings.rules,
            topics=settings.topics,
            handlers=settings.attempt.handlers,
            connection=self._usable_connection,
        )
        self._parked_gauges = ParkedGauges(metrics, connection=self._usable_connection)

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
        self._check_lanes_due(connection)
        self._partitions.renew_due()
        self._partitions.handle_notices(connection)
        self._partitions.follow_decisions(connection)
        taken = self._handoff.take_batch(
            records_max=self._settings.batch_records_max,
            bytes_max=self._settings.batch_bytes_max,
            wait_seconds=BATCH_WAIT_SECONDS,
        )
        try:
            items = [item for item in taken if self._partitions.awaits(item)]
            for item in items:
                self._lost.judge(item)
            if items:
                hit("processor.before_batch")
                self._run_batch(items)
        finally:
            self._handoff.finish_batch()
        self._redrive.turn()
        self._readmission.turn()
        self._parked_gauges.turn()

    def _connected(self) -> Connection[Any]:
        """Return the connection, after opening a new one where it is gone; then all partitions are taken over anew."""
        if self._connection is None or self._connection.closed:
            self._connection = self._open_database()
            self._known.forget_all()
            self._metrics.database_up.set(1)
            log.info("database_connected")
            self._partitions.take_all_anew()
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

    def _usable_connection(self) -> Connection[Any]:
        if self._connection is None or self._connection.closed:
            # A handler was stopped in the middle of a query.  The fence still protects what is held, but the new connection
            # may reach a server that lacks the last commits: a fact that is remembered as taken would lose its effect.
            self._connection = self._open_database()
            self._known.forget_all()
        return self._connection

    def _runner(self, connection: Connection[Any], *, entry: Entry, breaker: Breaker) -> BatchRunner:
        return BatchRunner(
            connection,
            settings=self._settings.attempt,
            known=self._known,
            deadline=self._deadline,
            breaker=breaker,
            wait=self._wait,
            entry=entry,
        )

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
                items = [item for item in items if end.is_open(item) and self._partitions.has(item.record.partition)]
        finally:
            self._note(end)
            self._note_suspect(end)
        self._hold(end)
        self._metrics.batch_seconds.observe(time.monotonic() - begun)

    def _run_once(self, items: list[Item], end: BatchEnd) -> None:
        connection = self._usable_connection()
        runner = self._runner(connection, entry=IN_TURN, breaker=self._breaker)
        positions = self._partitions.positions()
        with_care = [item for item in items if self._partitions.needs_care(item)]
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
            rest = [item for item in items if not self._partitions.needs_care(item)]
            if rest:
                runner.run(rest, positions={**positions, **end.positions}, end=end)
        except LeaseLost:
            self._note(end)
            self._partitions.after_fenced(connection)
        except ConnectionSpoiled:
            self._note(end)

    def _note(self, end: BatchEnd) -> None:
        """Take over the new positions, and count."""
        self._partitions.note(end)
        self._note_counts(end)

    def _note_counts(self, end: BatchEnd) -> None:
        for counts in end.counts:
            self._metrics.committed(counts)
            tell_kept(counts)
            self._versions.tell(counts.unknown_versions)
            if counts.operations or counts.hints:
                self._wake()
        end.counts.clear()

    def _hold(self, end: BatchEnd) -> None:
        """Closed lanes are compared again before the partitions that wait for them go on."""
        if end.closed_lanes:
            self._metrics.lanes_closed.set(len(end.closed_lanes))
            self._lane_check_at = time.monotonic() + HOLD_SECONDS
        self._partitions.hold(end, self._connection)

    def _note_redriven(self, end: BatchEnd) -> None:
        self._note_counts(end)
        if end.closed_lanes:
            self._lane_check_at = time.monotonic() + HOLD_SECONDS

    def _check_lanes_due(self, connection: Connection[Any]) -> None:
        if self._lane_check_at <= time.monotonic():
            self._metrics.lanes_closed.set(self._check_lanes(connection))
            self._lane_check_at = float("inf")

    def _release(self) -> None:
        connection = self._connection
        if connection is not None and not connection.closed:
            try:
                self._partitions.release(connection)
            finally:
                connection.close()
