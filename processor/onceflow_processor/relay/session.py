"""One term of one relay: from taking the lease until anything is in doubt.

Rule: a term begins with ``init_transactions``, which fences every former relay and aborts its open transaction, and
only then looks where each lane stands.  Whatever is in doubt later (a timeout, a fence, a lost answer) ends the term:
the next one begins with a new producer and a new look, so no answer is ever guessed.  A lane that disagrees, or whose
next row cannot be published, stands still alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, assert_never

import structlog

from onceflow_processor.relay.batches import BatchReader, Question, unpublishable
from onceflow_processor.relay.cursor import Agrees, Disagrees, Mark, Unsettled
from onceflow_processor.relay.encoding import Prepared
from onceflow_processor.relay.inspection import Inspected, inspect
from onceflow_processor.relay.kafka_clients import Refusals, open_producer, open_reader
from onceflow_processor.relay.lane_import import Behind, LaneImport
from onceflow_processor.relay.lane_store import LaneRow, LaneStore
from onceflow_processor.relay.lease import Lease
from onceflow_processor.relay.metrics import RelayMetrics, TransactionResult
from onceflow_processor.relay.publish import Failed, Published, Publisher
from onceflow_processor.relay.topic_tail import TopicTail
from onceflow_producer.failpoint import hit
from onceflow_producer.topic_limit import read_topic_bytes
from onceflow_schemas.failure import Failure, Uncertain, hint_for

LOOK_SECONDS_MAX: Final = 60.0
"""For one comparison of all lanes; the lease is kept meanwhile."""
LOOK_AGAIN_SECONDS: Final = 30.0
"""A lane that stands still is looked at again: a person may have mended what was wrong."""
IDLE_LOOK_SECONDS: Final = 60.0
"""So is one that has nothing to publish: its topic may have been made anew, or have lost its end, meanwhile."""
QUIET_SECONDS: Final = 5.0
"""The markers of a lane's last transaction are written by then; before that a look would find it unsettled."""
UNSETTLED_SECONDS: Final = 1.0
RECOMMIT_SECONDS: Final = 86_400.0
"""Kafka forgets the offsets of a group without members (after 7 days by default), so quiet lanes are written again."""
PAGE_BYTES_MAX: Final = 16_000_000
"""Values in one transaction; in memory are two such batches (one is read ahead) and the client's copy of one."""
IMPORTS: Final = ("behind", "recovering", "stopped:not_importable")
"""States of a lane whose topic is ahead: the restore is noted, and it hands out nothing."""
_NOTHING: Final[Mapping[int, Mark]] = {}

_log = structlog.get_logger("onceflow.relay")


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What every term of this process needs to know; see ``RelayOptions``."""

    kafka: Mapping[str, object]
    deployment: str
    outcome_topic: str
    group: str
    transactional_id: str
    batch_records_max: int


@dataclass(slots=True)
class _OpenLane:
    """A lane that is being published: the last published sequence, and how many rows may go into one transaction."""

    seq: int
    cursor: Mark | None
    committed_at: float | None
    rows_max: int


class Session:
    """One term.  ``open`` first, then ``step`` again and again, ``close`` at the end.

    Args:
        settings: the process's own.
        store: lanes and outcomes.
        lease: held by us.
        metrics: the process's own.
        refusals: told of refused credentials.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        settings: SessionSettings,
        *,
        store: LaneStore,
        lease: Lease,
        metrics: RelayMetrics,
        refusals: Refusals,
        clock: Callable[[], float],
    ) -> None:
        self._settings, self._store, self._lease = settings, store, lease
        self._metrics, self._refusals, self._clock = metrics, refusals, clock
        self._batches = BatchReader(store, deployment=settings.deployment)
        self._publisher: Publisher | None = None
        self._open: dict[int, _OpenLane] = {}
        self._states: dict[int, str] = {}
        self._look_at: dict[int, float] = {}
        self._unsettled: set[int] = set()

    def open(self) -> None:
        """Fence former relays, then look where each lane stands.

        Raises:
            Unavailable, LeaseLost, Misconfigured: as ``Publisher.start`` and ``inspect``.
        """
        self._replace_publisher()
        self._look(None)

    def step(self) -> bool:
        """Publish what is there, once; True when anything was published.

        Raises:
            Unavailable, Uncertain, LeaseLost: the term is over.
        """
        self._lease.keep()
        rows = self._store.lanes()
        self._metrics.show_lanes(rows)
        self._follow(rows)
        self._recommit()
        due = {row.lane: row for row in rows if row.lane in self._open and row.head > self._open[row.lane].seq}
        whole = [lane for lane in due if self._open[lane].rows_max >= self._settings.batch_records_max]
        # A lane in which a bad row is searched gets transactions of its own, so that it holds up nobody.
        searched = [[lane] for lane in due if lane not in whole]
        groups = [[due[lane] for lane in lanes] for lanes in [whole, *searched]]
        moved = False
        for rows_due in groups:
            moved = self._publish(rows_due) or moved
        return moved

    def close(self) -> None:
        """Throw the producer away; an open transaction is aborted by the next term."""
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None

    def _replace_publisher(self) -> None:
        """Begin with a new producer; fences the former one, and aborts what it left open."""
        self.close()
        settings = self._settings
        producer = open_producer(
            settings.kafka,
            transactional_id=settings.transactional_id,
            record_bytes_max=read_topic_bytes(settings.kafka, settings.outcome_topic),
            refusals=self._refusals,
        )
        self._publisher = Publisher(
            producer,
            topic=settings.outcome_topic,
            group_metadata=self._group_metadata(),
            keep_lease=self._lease.keep,
            lease_seconds=self._lease.remaining_seconds,
        )
        self._publisher.start()
        hit("relay.after_init_transactions")

    def _group_metadata(self) -> Any:
        settings = self._settings
        reader = open_reader(settings.kafka, group=settings.group, isolation="read_committed", refusals=self._refusals)
        try:
            return reader.consumer_group_metadata()
        finally:
            reader.close()

    def _look(self, lanes: Sequence[int] | None) -> None:
        with TopicTail(
            self._settings.kafka,
            topic=self._settings.outcome_topic,
            group=self._settings.group,
            deadline_seconds=LOOK_SECONDS_MAX,
            refusals=self._refusals,
        ) as tail:
            found = inspect(
                self._store, tail, topic=self._settings.outcome_topic, keep_lease=self._lease.keep, lanes=lanes
            )
            hit("relay.after_look")
            for inspected in found:
                self._take(inspected)
            # After all of them are closed: one restore is counted once.
            for inspected in found:
                self._import(inspected, tail)

    def _import(self, inspected: Inspected, tail: TopicTail) -> None:
        """Bring back what the topic knows beyond the head of a lane that is behind; the next look goes on from there."""
        lane, verdict = inspected.row.lane, inspected.verdict
        state = self._states[lane]
        if not isinstance(verdict, Disagrees) or verdict.code != "behind" or state not in IMPORTS:
            return
        answer = self._importer().run(Behind(lane, state, inspected.row.head, inspected.topic_head), tail)
        if isinstance(answer, Disagrees):
            row = next(row for row in self._store.lanes() if row.lane == lane)
            self._states[lane] = row.state
            self._stop(row, answer)
            return
        self._metrics.imported.labels(lane).inc(answer)
        self._states[lane] = "recovering"
        self._look_at[lane] = self._clock()

    def _importer(self) -> LaneImport:
        return LaneImport(
            self._store,
            deployment=self._settings.deployment,
            owner=self._lease.owner,
            token=self._lease.token,
            keep_lease=self._lease.keep,
        )

    def _take(self, inspected: Inspected) -> None:
        row, verdict = inspected.row, inspected.verdict
        former = self._open.pop(row.lane, None)
        self._batches.forget(row.lane)
        was_unsettled = row.lane in self._unsettled
        self._unsettled.discard(row.lane)
        self._states[row.lane] = row.state
        self._look_at[row.lane] = self._clock() + LOOK_AGAIN_SECONDS
        match verdict:
            case Agrees():
                self._look_at[row.lane] = self._clock() + IDLE_LOOK_SECONDS
                self._open_lane(row, verdict, former)
            case Disagrees():
                self._stop(row, verdict)
            case Unsettled():
                self._look_at[row.lane] = self._clock() + UNSETTLED_SECONDS
                self._unsettled.add(row.lane)
                if not was_unsettled:
                    _log.warning("lane_unsettled", lane=row.lane, detail=verdict.detail)
            case _:
                assert_never(verdict)

    def _open_lane(self, row: LaneRow, verdict: Agrees, former: _OpenLane | None) -> None:
        if verdict.seq > row.published:
            self._store.mark_published(self._lease.token, {row.lane: verdict.seq})
        trial = row.state == "stopped:unpublishable"
        if row.state != "ok" and not trial:
            self._store.set_state(self._lease.token, row, state="ok", detail="")
            self._states[row.lane] = "ok"
            _log.info("lane_opened", lane=row.lane, former_state=row.state, seq=verdict.seq)
        rows_max = 1 if trial else self._settings.batch_records_max
        committed_at = former.committed_at if former is not None and former.cursor == verdict.cursor else None
        self._open[row.lane] = _OpenLane(verdict.seq, verdict.cursor, committed_at, rows_max)

    def _stop(self, row: LaneRow, found: Disagrees) -> None:
        """Close a lane and say so, once."""
        self._open.pop(row.lane, None)
        self._batches.forget(row.lane)
        row = replace(row, state=self._states[row.lane])
        self._look_at[row.lane] = self._clock() + LOOK_AGAIN_SECONDS
        if found.code == "behind" and row.state in IMPORTS:
            return
        if (row.state, row.detail) == (found.state, found.detail):
            return
        if not self._store.set_state(self._lease.token, row, state=found.state, detail=found.detail):
            return  # Somebody changed the lane meanwhile: it is looked at again.
        self._states[row.lane] = found.state
        hint = hint_for(found.code)
        _log.error("lane_stopped", lane=row.lane, state=found.state, detail=found.detail, hint=hint)

    def _follow(self, rows: Iterable[LaneRow]) -> None:
        """Follow what others did to the lanes: the processor's look, a person's decision, a restored database."""
        now = self._clock()
        wanted = []
        for row in rows:
            changed = self._states.get(row.lane) != row.state
            lane = self._open.get(row.lane)
            if lane is not None and not changed and row.published <= lane.seq <= row.head:
                if self._is_idle(row, lane, now=now):
                    wanted.append(row.lane)
                continue
            if changed or lane is not None or self._look_at[row.lane] <= now:
                self._open.pop(row.lane, None)
                wanted.append(row.lane)
        if wanted:
            self._look(wanted)

    def _is_idle(self, row: LaneRow, lane: _OpenLane, *, now: float) -> bool:
        """Tell whether a lane that has nothing to publish is to be looked at again."""
        quiet = lane.committed_at is not None and now - lane.committed_at >= QUIET_SECONDS
        return quiet and row.head == lane.seq and self._look_at[row.lane] <= now

    def _recommit(self) -> None:
        """Write the cursors of quiet lanes again before Kafka forgets them."""
        now = self._clock()
        cursors = {
            number: lane.cursor
            for number, lane in self._open.items()
            if lane.cursor is not None and (lane.committed_at is None or now - lane.committed_at >= RECOMMIT_SECONDS)
        }
        if cursors:
            self._transact({}, recommit=cursors)
            for number in cursors:
                self._open[number].committed_at = now

    def _publish(self, rows: Sequence[LaneRow]) -> bool:
        batches: dict[int, list[Prepared]] = {}
        for row in rows:
            batch = self._batches.take(self._question(row.lane, self._open[row.lane].seq, share=len(rows)))
            if batch.records:
                batches[row.lane] = batch.records
            elif batch.fault is not None:
                self._stop(row, batch.fault)
        if not batches:
            return False
        by_lane = {row.lane: row for row in rows}
        answer = self._transact(batches, meanwhile=partial(self._read_ahead, batches, by_lane))
        match answer:
            case Published():
                self._take_published(answer, by_lane)
            case Failed():
                self._replace_publisher()
                for number, refusal in answer.refused.items():
                    self._narrow(by_lane[number], batches[number], reason=refusal.reason)
            case _:
                assert_never(answer)
        return True

    def _question(self, lane: int, after_seq: int, *, share: int) -> Question:
        rows_max = min(self._open[lane].rows_max, self._settings.batch_records_max // share)
        return Question(lane, after_seq, max(1, rows_max), PAGE_BYTES_MAX // share)

    def _read_ahead(self, batches: Mapping[int, Sequence[Prepared]], rows: Mapping[int, LaneRow]) -> None:
        """Use the time in which a transaction's records are on their way."""
        for number, records in batches.items():
            last = records[-1].seq
            if last < rows[number].head:
                self._batches.read_ahead(self._question(number, last, share=len(rows)))

    def _take_published(self, answer: Published, rows: Mapping[int, LaneRow]) -> None:
        now = self._clock()
        for number, mark in answer.cursors.items():
            lane = self._open[number]
            self._metrics.published.labels(number).inc(mark.seq - lane.seq)
            lane.seq, lane.cursor, lane.committed_at = mark.seq, mark, now
            lane.rows_max = min(lane.rows_max * 2, self._settings.batch_records_max)
        hit("relay.after_commit")
        if answer.cursors:
            self._store.mark_published(self._lease.token, {number: mark.seq for number, mark in answer.cursors.items()})
            hit("relay.after_mark")
            self._reopened(rows, answer.cursors)
        for number, refusal in answer.refused.items():
            assert refusal.seq is not None, "the client names the record that it refuses"
            self._stop(rows[number], unpublishable(refusal.seq, refusal.reason))

    def _reopened(self, rows: Mapping[int, LaneRow], cursors: Mapping[int, Mark]) -> None:
        """``mark_published`` has opened lanes whose unpublishable row went out after all."""
        for number in cursors:
            if rows[number].state == "stopped:unpublishable":
                self._states[number] = "ok"
                _log.info("lane_opened", lane=number, former_state=rows[number].state, seq=cursors[number].seq)

    def _narrow(self, row: LaneRow, batch: Sequence[Prepared], *, reason: str) -> None:
        """One of these records is not taken: halve until it stands alone, then stop the lane in front of it."""
        if len(batch) == 1:
            self._stop(row, unpublishable(batch[0].seq, reason))
        else:
            self._open[row.lane].rows_max = len(batch) // 2

    def _transact(
        self,
        batches: Mapping[int, Sequence[Prepared]],
        *,
        recommit: Mapping[int, Mark] = _NOTHING,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Published | Failed:
        assert self._publisher is not None, "open comes first"
        started = time.monotonic()
        result: TransactionResult = "failed"
        try:
            answer = self._publisher.publish(batches, recommit=recommit, meanwhile=meanwhile)
            result = "committed" if isinstance(answer, Published) and (answer.cursors or recommit) else "refused"
        except Failure as failure:
            result = "uncertain" if isinstance(failure, Uncertain) else "failed"
            raise
        finally:
            self._metrics.count_transaction(result, time.monotonic() - started)
        return answer
