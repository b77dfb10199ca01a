"""The partitions of this process: taken over, held, waiting, standing still, given up.

Rule: what is remembered here about a partition is worth nothing without the fence in PostgreSQL; in doubt it is
forgotten, and the partition is taken over again.
"""

from __future__ import annotations

import random
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import psycopg
import structlog
from psycopg import Connection

from onceflow_processor.admission import Item
from onceflow_processor.batch_runner import BatchEnd
from onceflow_processor.handoff import Assigned, Done, Handoff, Notice, Read, Renew, Revoked, Stopped
from onceflow_processor.metrics import ProcessorMetrics
from onceflow_processor.position import Position, Stop
from onceflow_processor.records import Partition
from onceflow_processor.takeover import Takeover
from onceflow_producer.failpoint import hit

HOLD_SECONDS = 2.0
FENCED_WAIT_SECONDS_MAX = 10.0
DECISIONS_SECONDS = 2.0
"""So often it is asked whether a person has set a position: of a partition that is held, or of one that stands still."""

_FENCED_WAIT_SECONDS = 0.5

log = structlog.get_logger("onceflow.processor")


@dataclass(slots=True)
class _Held:
    position: Position
    generation: int
    careful_records: int


class PartitionsHeld:
    """What the worker holds, and everything that happens to it between batches.

    ``careful_records`` says for how many records a partition is read with care after it was found unclean.
    """

    def __init__(
        self, handoff: Handoff, *, cluster_id: str, owner: str, careful_records: int, metrics: ProcessorMetrics
    ) -> None:
        self._handoff = handoff
        self._cluster_id = cluster_id
        self._owner = owner
        self._careful_records = careful_records
        self._metrics = metrics
        self._notices: deque[Notice] = deque()
        self._held: dict[Partition, _Held] = {}
        self._renew_at: dict[Partition, tuple[float, Renew]] = {}
        self._fenced: dict[Partition, int] = {}
        self._doubted: dict[Partition, int] = {}
        self._stopped: dict[Partition, tuple[str, str]] = {}
        self._decisions_at = 0.0

    def positions(self) -> dict[Partition, Position]:
        """Return where the held partitions stand."""
        return {partition: held.position for partition, held in self._held.items()}

    def has(self, partition: Partition) -> bool:
        """Tell whether a partition is held now."""
        return partition in self._held

    def awaits(self, item: Item) -> bool:
        """Tell whether a record belongs to a position that is held now."""
        record = item.record
        held = self._held.get(record.partition)
        return held is not None and held.generation == record.generation and record.offset >= held.position.next_offset

    def needs_care(self, item: Item) -> bool:
        """Tell whether a record of a held partition is to be tried alone."""
        return self._held[item.record.partition].careful_records > 0

    def handle_notices(self, connection: Connection[Any]) -> None:
        """Do what the consume thread has told."""
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

    def take_all_anew(self) -> None:
        """Forget all positions, and have the partitions announced again: the connection is another one."""
        for partition in list(self._held):
            self._forget(partition)
            self._handoff.put_command(Renew(partition))

    def renew_due(self) -> None:
        """Have the partitions announced again whose wait is over."""
        now = time.monotonic()
        for partition, (due, renew) in list(self._renew_at.items()):
            if due <= now:
                del self._renew_at[partition]
                self._handoff.put_command(renew)

    def note(self, end: BatchEnd) -> None:
        """Take over the new positions, and tell the consume thread for the lag tools."""
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

    def hold(self, end: BatchEnd, connection: Connection[Any] | None) -> None:
        """Partitions that cannot go on wait a while, and say why."""
        due = time.monotonic() + HOLD_SECONDS
        for partition, reason in end.reasons.items():
            log.error("partition_waits", partition=str(partition), reason=reason)
            self._metrics.trouble.labels("partition_waits").inc()
            self._metrics.waits(partition, is_waiting=True)
            held = self._held.get(partition)
            if held is not None and connection is not None:
                self._takeover(connection).wait(partition, held.position, reason=reason)
            self._forget(partition)
            self._renew_at[partition] = (due, Renew(partition))

    def after_fenced(self, connection: Connection[Any]) -> None:
        """Drop what somebody else has taken; where Kafka still gives it to us, prove membership before trying again."""
        positions = self.positions()
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

    def follow_decisions(self, connection: Connection[Any]) -> None:
        """Take partitions over anew whose position a person has set; an idle one would not notice by a failed fence."""
        now = time.monotonic()
        if now < self._decisions_at:
            return
        self._decisions_at = now + DECISIONS_SECONDS
        if self._held:
            self.after_fenced(connection)
        if self._stopped:
            topic_ids = {partition: topic_id for partition, (topic_id, _) in self._stopped.items()}
            for partition in self._takeover(connection).decided(topic_ids):
                _, code = self._stopped.pop(partition)
                self._metrics.stopped.labels(partition.topic, str(partition.number), code).set(0)
                log.info("partition_decided", partition=str(partition), code=code)
                self._handoff.put_command(Renew(partition))

    def release(self, connection: Connection[Any]) -> None:
        """The clean end; when the database is away, the next owner finds the partitions unclean, which is true."""
        try:
            self._takeover(connection).release(self.positions())
        except psycopg.Error as error:
            log.warning("release_failed", reason=type(error).__name__)

    def _takeover(self, connection: Connection[Any]) -> Takeover:
        return Takeover(connection, cluster_id=self._cluster_id, owner=self._owner)

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
            careful_records = self._careful_records if taken.needs_care else 0
            if careful_records:
                log.warning("careful_mode", partition=str(assigned.partition), records=careful_records)
            self._held[assigned.partition] = _Held(taken.position, assigned.generation, careful_records)
            self._metrics.partitions.set(len(self._held))
            self._handoff.put_command(Read(assigned.partition, assigned.generation, taken.verdict))
            # A killed owner may not have told the group how far it came, and without new records nobody else would.
            self._handoff.put_command(Done({assigned.partition: taken.position.next_offset}))

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
