"""Reads the event topics into tables: by blocks where everything is asked for, and record by record what is not proved that way.

Rule: positions are read before the topics; a block is left out only while each of its records has the very row that it must have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, cast

from onceflow_processor.kafka_client import StartClient
from onceflow_reconciler.verify.folding import BLOCK_PLACES, EventBlocks, Sum
from onceflow_reconciler.verify.page_lines import plain_lines, record_of
from onceflow_reconciler.verify.question import Question
from onceflow_reconciler.verify.seen_rows import event_row
from onceflow_reconciler.verify.tables import RowBlocks, Tables
from onceflow_reconciler.verify.topic_scan import Bounds, begin_at, kept_since, noted, opened

HINT_MARGIN: Final = timedelta(hours=1)
"""A record's time is its producer's clock: reading begins so much earlier."""

BlocksOf = Mapping[int, AbstractSet[int]]
"""Numbers of blocks, by partition."""


class _Topic(NamedTuple):
    name: str
    id: str
    bounds: Mapping[int, Bounds]
    first: Mapping[int, int]
    passed: Mapping[int, int]
    is_ours: bool


class _RowBlock(NamedTuple):
    """What the rows of a block fold to, and how many of them are processed, ignored, and parked."""

    sum: Sum
    states: tuple[int, int, int]


class EventLedger:
    """Reads all event topics for one question.

    Args:
        question: what is asked.
        tables: that are written to.
        rows: folds the markers meanwhile.
        beside: runs that in a thread.
    """

    def __init__(self, question: Question, tables: Tables, *, rows: RowBlocks, beside: Executor) -> None:
        self._question = question
        self._tables = tables
        self._rows = rows
        self._beside = beside
        self._now = datetime.now(UTC)
        self.topics: dict[str, dict[str, Any]] = {}

    def read(self) -> None:
        """Read them.

        Raises:
            Failure, psycopg.Error: a ledger cannot be read; nothing is proved.
        """
        topics = self._look()
        for topic in topics:
            whole = self._question.is_whole and topic.is_ours
            self._copy(topic, self._differing(topic) if whole else None)
        # The same event at two places: the block of its marker is looked at too, so that both are compared.
        originals: dict[str, dict[int, set[int]]] = {}
        for topic_id, partition, block in self._tables.rows("unprove_originals"):
            originals.setdefault(topic_id, {}).setdefault(partition, set()).add(block)
        for topic in topics:
            if topic.id in originals:
                self._copy(topic, originals[topic.id])

    def _look(self) -> list[_Topic]:
        question, tables = self._question, self._tables
        progress = {(topic_id, number): offset for topic_id, number, offset in tables.rows("positions")}
        rows = [] if question.since is None else tables.rows("first_offsets")
        known = {(topic_id, number): offset for topic_id, number, offset in rows}
        _, facts = StartClient(question.kafka).ask(list(question.event_topics))
        topics = []
        for name in question.event_topics:
            topic_id = facts[name].topic_id
            with opened(question.kafka, topic=name, group=question.group) as scan:
                bounds = scan.bounds(facts[name].partitions)
                hints = None if question.since is None else scan.offsets_at(question.since - HINT_MARGIN, bounds)
            here = {number: offset for (named, number), offset in known.items() if named == topic_id}
            first = begin_at(bounds, hints=hints, known=here)
            passed = {number: progress.get((topic_id, number), 0) for number in bounds}
            for number, one in bounds.items():
                given = {
                    "topic": name,
                    "topic_id": topic_id,
                    "partition": number,
                    "low": one.low,
                    "first": first[number],
                }
                given |= {"kept_since": kept_since(facts[name].keeps_ms, self._now)}
                tables.run("add_passed", **given, high=one.high, next_offset=passed[number])
            self.topics[name] = noted(topic_id, first, bounds)
            told = question.rules.inputs.get(name)
            is_ours = told is None or told.format == "onceflow"
            topics.append(_Topic(name, topic_id, bounds, first, passed, is_ours))
        return topics

    def _differing(self, topic: _Topic) -> BlocksOf:
        """Compare blocks of records with blocks of rows; return those that differ, the others are noted as proved."""
        folded = self._beside.submit(self._fold_rows, topic)
        blocks = {number: EventBlocks() for number in topic.bounds}
        with opened(self._question.kafka, topic=topic.name, group=self._question.group) as scan:
            for page in scan.messages(topic.first, topic.bounds):
                _fold(page, blocks)
                self._tables.count(len(page))
        rows = folded.result()
        differing: dict[int, AbstractSet[int]] = {}
        with self._tables.copy("copy_proved_events") as copy:
            for number, one in blocks.items():
                compared = one.compare({block: found.sum for block, found in rows[number].items()})
                differing[number] = compared.differing
                for block in sorted(compared.proved):
                    since = max(topic.first[number], block * BLOCK_PLACES)
                    until = min(topic.bounds[number].high, (block + 1) * BLOCK_PLACES)
                    copy.write_row((topic.id, number, block, since, until, *rows[number][block].states))
        return differing

    def _fold_rows(self, topic: _Topic) -> Mapping[int, Mapping[int, _RowBlock]]:
        found: dict[int, dict[int, _RowBlock]] = {number: {} for number in topic.bounds}
        rows = self._rows.rows(
            "event_blocks",
            topic_id=topic.id,
            partitions=list(topic.bounds),
            firsts=[topic.first[number] for number in topic.bounds],
            highs=[one.high for one in topic.bounds.values()],
        )
        for partition, block, records, digest, processed, ignored, parked in rows:
            found[partition][block] = _RowBlock(Sum(records, digest), (processed, ignored, parked))
        return found

    def _copy(self, topic: _Topic, wanted: BlocksOf | None) -> None:
        """Copy records, of these blocks only; None for all."""
        first, bounds = topic.first, topic.bounds
        if wanted is not None:
            bounds = {
                number: Bounds(one.low, min(one.high, (max(wanted[number]) + 1) * BLOCK_PLACES))
                for number, one in bounds.items()
                if wanted.get(number)
            }
            first = {number: max(first[number], min(wanted[number]) * BLOCK_PLACES) for number in bounds}
        if not bounds:
            return
        with (
            opened(self._question.kafka, topic=topic.name, group=self._question.group) as scan,
            self._tables.copy("copy_events") as copy,
        ):
            for read in scan.messages(first, bounds):
                page = read
                if wanted is not None:
                    page = [
                        one
                        for one in read
                        if cast("int", one.offset()) // BLOCK_PLACES in wanted[cast("int", one.partition())]
                    ]
                lines, rest = plain_lines(page, topic.id, topic.passed) if topic.is_ours else ([], page)
                copy.write(b"".join(lines))
                for message in rest:
                    record = record_of(topic.name, message)
                    behind = record.offset < topic.passed[record.partition.number]
                    row = event_row(record, topic_id=topic.id, rules=self._question.rules, now=self._now, passed=behind)
                    copy.write_row(row)
                if wanted is None:
                    self._tables.count(len(read))


def _fold(page: Iterable[Any], blocks: Mapping[int, EventBlocks]) -> None:
    """Fold records, of which the scan leaves out what has no place."""
    for message in page:
        blocks[message.partition()].add(message.offset(), message.headers(), message.value())


def note_ends(question: Question, tables: Tables, topics: Mapping[str, Mapping[str, Any]]) -> None:
    """Note where the logs end now, after the markers were read.

    Args:
        question: what is asked.
        tables: that are written to.
        topics: what was noted of each topic, as in ``EventLedger.topics``.
    """
    for name in question.event_topics:
        told = topics[name]
        with opened(question.kafka, topic=name, group=question.group) as scan:
            for number, one in scan.bounds(len(told["partitions"])).items():
                tables.run("note_end", topic_id=told["id"], partition=number, high=one.high)
