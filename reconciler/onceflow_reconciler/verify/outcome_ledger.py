"""Reads the outcome topic into tables: by blocks where everything is asked for, and record by record what is not proved that way.

Rule: what lanes say is read before the topic; a block is left out only while its records are its rows, each once and in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor
from typing import Any, cast

from confluent_kafka import Message

from onceflow_processor.kafka_client import StartClient
from onceflow_processor.records import Headers
from onceflow_reconciler.verify.event_ledger import HINT_MARGIN
from onceflow_reconciler.verify.folding import BLOCK_PLACES, OutcomeBlocks, Sum, outcome_words
from onceflow_reconciler.verify.page_lines import outcome_row_of, plain_outcomes
from onceflow_reconciler.verify.question import Question
from onceflow_reconciler.verify.tables import RowBlocks, Tables
from onceflow_reconciler.verify.topic_scan import Bounds, TopicScan, begin_at, noted, opened
from onceflow_schemas.failure import Misconfigured

Reached = dict[int, tuple[int, int]]
"""The smallest and the largest sequence that was read, by lane; refills are none."""


class OutcomeLedger:
    """Reads the outcome topic for one question; arguments as of ``EventLedger``."""

    def __init__(self, question: Question, tables: Tables, *, rows: RowBlocks, beside: Executor) -> None:
        self._question = question
        self._tables = tables
        self._rows = rows
        self._beside = beside
        self._source = f"urn:onceflow:{question.rules.deployment}"
        self.topics: dict[str, dict[str, Any]] = {}

    def read(self) -> None:
        """Read it.

        Raises:
            Failure, psycopg.Error: a ledger cannot be read; nothing is proved.
        """
        question, tables = self._question, self._tables
        lanes = tables.rows("lanes")
        _, topics = StartClient(question.kafka).ask([question.outcome_topic])
        facts = topics[question.outcome_topic]
        if len(lanes) != facts.partitions:
            message = f"{question.outcome_topic} has {facts.partitions} partitions, the database has {len(lanes)} lanes"
            raise Misconfigured("topic_mismatch", message, "`onceflow topics plan` shows what is set up.")
        for lane, _, _, topic_id in lanes:
            if topic_id != facts.topic_id:
                tables.unexplained("outcome_topic_changed", str(lane), f"lane {lane} belongs to another topic")
        with opened(question.kafka, topic=question.outcome_topic, group=question.group) as scan:
            bounds = scan.bounds(facts.partitions)
            hints = None if question.since is None else scan.offsets_at(question.since - HINT_MARGIN, bounds)
            first = begin_at(bounds, hints=hints, known={})
            self.topics[question.outcome_topic] = noted(facts.topic_id, first, bounds)
            if question.is_whole:
                reached = self._read_blocks(scan, first, bounds)
            else:
                reached = self._copy_window(scan, first, bounds)
        for lane, head, published, _ in lanes:
            first_seq, last_seq = reached.get(lane, (None, None))
            given = {"lane": lane, "head_seq": head, "published_seq": published, "low": bounds[lane].low}
            tables.run("add_lane", **given, first=first[lane], first_seq=first_seq, last_seq=last_seq)

    def _copy_window(self, scan: TopicScan, first: Mapping[int, int], bounds: Mapping[int, Bounds]) -> Reached:
        rows = [] if self._question.since is None else self._tables.rows("first_sequences")
        reached = self._copy(scan, first, bounds, proved={})
        # The time was only a hint: where the ledger knows an earlier outcome of the window, the rest is read too.
        late = {
            lane for lane, seq in rows if lane in reached and seq < reached[lane][0] and first[lane] > bounds[lane].low
        }
        if late:
            ends = {lane: Bounds(bounds[lane].low, first[lane]) for lane in late}
            earlier = self._copy(scan, {lane: bounds[lane].low for lane in late}, ends, proved={})
            for lane, (lowest, highest) in earlier.items():
                reached[lane] = (min(lowest, reached[lane][0]), max(highest, reached[lane][1]))
        return reached

    def _read_blocks(self, scan: TopicScan, first: Mapping[int, int], bounds: Mapping[int, Bounds]) -> Reached:
        """Compare blocks of records with blocks of rows, and copy those that differ."""
        folded = self._beside.submit(self._fold_rows)
        blocks = {lane: OutcomeBlocks() for lane in bounds}
        for page in scan.messages(first, bounds):
            self._fold(page, blocks)
            self._tables.count(len(page))
        rows = folded.result()
        compared = {lane: one.compare(rows.get(lane, {})) for lane, one in blocks.items()}
        with self._tables.copy("copy_proved_outcomes") as copy:
            for lane, found in compared.items():
                for block in sorted(found.proved):
                    copy.write_row((lane, block))
        again = {lane: found.read_again for lane, found in compared.items() if found.read_again is not None}
        self._copy(
            scan,
            {lane: begin for lane, (begin, _) in again.items()},
            {lane: Bounds(bounds[lane].low, end) for lane, (_, end) in again.items()},
            proved={lane: found.proved for lane, found in compared.items()},
        )
        return {
            lane: (one.first_seq, one.last_seq)
            for lane, one in blocks.items()
            if one.first_seq is not None and one.last_seq is not None
        }

    def _fold_rows(self) -> Mapping[int, Mapping[int, Sum]]:
        found: dict[int, dict[int, Sum]] = {}
        for lane, block, records, digest in self._rows.rows("outcome_blocks"):
            found.setdefault(lane, {})[block] = Sum(records, digest)
        return found

    def _fold(self, page: list[Message], blocks: Mapping[int, OutcomeBlocks]) -> None:
        source = self._source.encode()
        names = {lane: b"%d" % lane for lane in blocks}
        for message in page:
            lane, offset, headers = message.partition(), message.offset(), message.headers()
            key, value = message.key(), message.value()
            assert lane is not None, "the scan leaves out what has no place"
            assert offset is not None, "the scan leaves out what has no place"
            words = None
            if headers and key and value is not None:
                said = cast("Headers", headers)
                words = outcome_words(names[lane], key=key, value=value, headers=said, source=source)
            if words is not None:
                blocks[lane].add(offset, *words)
                continue
            row = outcome_row_of(message, self._source)
            if row.seq is None:
                blocks[lane].add_foreign(offset)
            elif row.refill:
                blocks[lane].add_refill(offset, row.seq)
            else:
                blocks[lane].add(offset, row.seq, None)

    def _copy(
        self,
        scan: TopicScan,
        first: Mapping[int, int],
        bounds: Mapping[int, Bounds],
        *,
        proved: Mapping[int, AbstractSet[int]],
    ) -> Reached:
        """Copy records, but not those of a block that is proved; return what was reached."""
        reached: Reached = {}
        with self._tables.copy("copy_outcomes") as copy:
            for page in scan.messages(first, bounds):
                lines = []
                for lane, seq, line, row in plain_outcomes(page, self._source):
                    if seq is not None:
                        if seq // BLOCK_PLACES in proved.get(lane, ()):
                            continue
                        if row is None or not row.refill:
                            lowest, highest = reached.get(lane, (seq, seq))
                            reached[lane] = (min(lowest, seq), max(highest, seq))
                    if line is not None:
                        lines.append(line)
                    elif row is not None:
                        copy.write_row(row)
                copy.write(b"".join(lines))
                if not proved:
                    self._tables.count(len(page))
        return reached
