"""Compares each lane with its partition: what the cursor, the topic and the database say together.

Rule: the database is read after the topic, so that a lane which moves on meanwhile is never taken for one that was
put back; and every record after ``published_seq`` is compared with its row before the relay goes on behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final
from uuid import UUID

from onceflow_processor.relay.cursor import (
    Agrees,
    Cursor,
    Disagrees,
    Extent,
    Mark,
    OutcomeRecord,
    TailRecord,
    Verdict,
    compare,
    judge,
)
from onceflow_processor.relay.lane_store import LaneRow, LaneStore
from onceflow_processor.relay.topic_tail import TopicFacts, TopicTail
from onceflow_schemas.failure import Misconfigured
from onceflow_schemas.topic_ids import shown_topic_id

COMPARE_RECORDS_MAX: Final = 2_000
"""Records and rows that are held at once while a stretch is compared."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What the topic says about a lane."""

    cursor: Cursor
    extent: Extent
    last: TailRecord | None

    @property
    def seqs(self) -> list[int]:
        """The sequences whose rows a verdict needs."""
        found = [self.cursor.seq] if isinstance(self.cursor, Mark) else []
        return [*found, self.last.seq] if isinstance(self.last, OutcomeRecord) else found


@dataclass(frozen=True, slots=True)
class Inspected:
    """A lane as the database had it, the verdict on it, and what the verdict rests on.

    Args:
        row: the lane.
        verdict: what its state should be.
        seen: what the topic says.
        known: record ids of the rows at the sequences that ``seen`` names.
        topic_id: of the topic that was looked at.
    """

    row: LaneRow
    verdict: Verdict
    seen: Observed
    known: Mapping[int, UUID]
    topic_id: str

    @property
    def topic_head(self) -> int:
        """The last sequence that the topic, or the relay's cursor, knows of."""
        return max(self.seen.seqs, default=0)


def check_shape(rows: Sequence[LaneRow], facts: TopicFacts, *, topic: str) -> None:
    """Refuse lanes that do not fit the topic.

    Raises:
        Misconfigured: ``lanes_missing`` or ``topic_mismatch``.
    """
    if not rows:
        raise Misconfigured("lanes_missing", "the database has no lanes yet")
    if [row.lane for row in rows] != list(range(facts.partitions)):
        message = f"the topic {topic} has {facts.partitions} partitions, the database has {len(rows)} lanes"
        raise Misconfigured("topic_mismatch", message, "The number of lanes is fixed: restore the partition count.")


def observe(tail: TopicTail, lanes: Sequence[int]) -> Iterator[tuple[int, Observed]]:
    """Read what the topic says about these lanes, one after the other."""
    cursors = tail.cursors(lanes)
    extents = tail.extents(lanes)
    for lane in lanes:
        yield lane, Observed(cursors[lane], extents[lane], tail.last_record(lane, extents[lane]))


def inspect(
    store: LaneStore,
    tail: TopicTail,
    *,
    topic: str,
    keep_lease: Callable[[], None],
    lanes: Sequence[int] | None = None,
) -> list[Inspected]:
    """Judge lanes; to be called after ``init_transactions``, when no transaction of a relay is open.

    Args:
        store: the database.
        tail: a fresh look at the topic.
        topic: its name.
        keep_lease: called between the steps, which may be many.
        lanes: only these; None for all.

    Raises:
        LeaseLost: by ``keep_lease``.
        Misconfigured: the lanes do not fit the topic, or it does not exist.
        Unavailable: Kafka or the database did not answer.
    """
    facts = tail.facts()
    wanted = list(range(facts.partitions)) if lanes is None else [lane for lane in lanes if lane < facts.partitions]
    observed = {}
    for lane, seen in observe(tail, wanted):
        observed[lane] = seen
        keep_lease()
    rows = store.lanes()
    check_shape(rows, facts, topic=topic)
    asked = [(lane, seq) for lane in wanted for seq in [*observed[lane].seqs, rows[lane].published]]
    known = store.ids(asked)
    inspector = _Inspector(store=store, tail=tail, facts=facts, keep_lease=keep_lease)
    return [
        Inspected(
            rows[lane],
            inspector.verdict(rows[lane], observed[lane], known=known[lane]),
            observed[lane],
            known[lane],
            facts.topic_id,
        )
        for lane in wanted
    ]


def topic_changed(row: LaneRow, facts: TopicFacts) -> Disagrees | None:
    """Return the disagreement of a lane that belongs to another topic of the same name."""
    if row.topic_id == facts.topic_id:
        return None
    return Disagrees(
        "topic_changed",
        f"the topic is {shown_topic_id(facts.topic_id)}, the lane belongs to {shown_topic_id(row.topic_id)}",
    )


@dataclass(frozen=True, slots=True)
class _Inspector:
    store: LaneStore
    tail: TopicTail
    facts: TopicFacts
    keep_lease: Callable[[], None]

    def verdict(self, row: LaneRow, seen: Observed, *, known: Mapping[int, UUID]) -> Verdict:
        """Judge one lane, and compare what the database does not know to be published yet."""
        changed = topic_changed(row, self.facts)
        if changed is not None:
            return changed
        verdict = judge(seen.cursor, seen.last, extent=seen.extent, lane=row.numbers, known=known)
        if not isinstance(verdict, Agrees) or verdict.seq == row.published:
            return verdict
        wrong = self._compare(row, last_seq=verdict.seq, extent=seen.extent)
        return verdict if wrong is None else wrong

    def _compare(self, row: LaneRow, *, last_seq: int, extent: Extent) -> Disagrees | None:
        records = self.tail.records_around(row.lane, row.published, extent=extent)
        seen_published, rest = skip_published(records, row.published)
        # Where the log's start has passed what was published, it may have passed more; the rest is still compared.
        passed = not seen_published and extent.low > 0
        expected = row.published + 1
        while page := list(islice(rest, COMPARE_RECORDS_MAX)):
            self.keep_lease()
            if passed:
                expected = next((one.seq for one in page if isinstance(one, OutcomeRecord)), expected)
                passed = False
            known = self.store.ids_between(row.lane, first_seq=expected, last_seq=expected + len(page))
            answer = compare(expected, page, known=known)
            if isinstance(answer, Disagrees):
                return answer
            expected = answer
        if passed or expected == last_seq + 1:
            return None
        return Disagrees(
            "diverged", f"the topic's records end with sequence {expected - 1}, the cursor says {last_seq}"
        )


def skip_published(records: Iterator[TailRecord], seq: int) -> tuple[bool, Iterator[TailRecord]]:
    """Leave out everything up to the last record whose sequence is at most ``seq``.

    Returns:
        Whether there was such a record, and the records behind it (refills and strange ones among them).
    """
    seen, held = False, list[TailRecord]()
    for record in records:
        if isinstance(record, OutcomeRecord) and not record.refill:
            if record.seq > seq:
                return seen, chain(held, [record], records)
            seen = True
            held.clear()
        else:
            held.append(record)
    return seen, iter(held)
