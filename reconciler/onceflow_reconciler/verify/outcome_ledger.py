"""Reads the outcome topic into tables: by blocks where everything is asked for, and record by record what is not proved that way.

Rule: what lanes say is read before the topic; a block is left out only while its records are its rows, each once and in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any

from onceflow_processor.kafka_client import StartClient
from onceflow_reconciler.verify.event_ledger import HINT_MARGIN
from onceflow_reconciler.verify.folding import BLOCK_PLACES, Sum
from onceflow_reconciler.verify.outcome_fold import BESIDE_RECORDS_MIN, Asked, Blocks, FoldBeside, fold_outcomes
from onceflow_reconciler.verify.page_lines import plain_outcomes
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
        self._lanes: list[Any] = []
        self._first: dict[int, int] = {}
        self._bounds: dict[int, Bounds] = {}
        self._asked: Asked | None = None
        self._fold: FoldBeside | None = None
        self._folded: Future[Mapping[int, Mapping[int, Sum]]] | None = None
        self.topics: dict[str, dict[str, Any]] = {}

    def begin(self) -> None:
        """Read what lanes say and then where the topic ends; where everything is asked for, begin to fold rows and a long topic.

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
        self._lanes, self._bounds, self._first = lanes, bounds, begin_at(bounds, hints=hints, known={})
        self.topics[question.outcome_topic] = noted(facts.topic_id, self._first, bounds)
        if question.is_whole:
            self._asked = Asked(
                kafka=question.kafka,
                group=question.group,
                topic=question.outcome_topic,
                source=self._source,
                first=self._first,
                bounds=bounds,
            )
            self._folded = self._beside.submit(self._fold_rows)
            if self._asked.records_max >= BESIDE_RECORDS_MIN:
                with suppress(OSError):
                    self._fold = FoldBeside(self._asked)

    def read(self) -> None:
        """Read the rest of it.

        Raises:
            Failure, psycopg.Error: as ``begin``.
        """
        question, bounds = self._question, self._bounds
        # Folded before the scan is open: a client that waits would fetch nothing, and hold memory.
        blocks = self._blocks()
        with opened(question.kafka, topic=question.outcome_topic, group=question.group) as scan:
            reached = self._copy_differing(scan, blocks) if blocks is not None else self._copy_window(scan)
        for lane, head, published, _ in self._lanes:
            first_seq, last_seq = reached.get(lane, (None, None))
            given = {"lane": lane, "head_seq": head, "published_seq": published, "low": bounds[lane].low}
            self._tables.run("add_lane", **given, first=self._first[lane], first_seq=first_seq, last_seq=last_seq)

    def close(self) -> None:
        """End what still folds."""
        if self._fold is not None:
            self._fold.close()

    def _blocks(self) -> Blocks | None:
        """Return the topic as blocks; None where only a window is asked for."""
        if self._asked is None:
            return None
        blocks = None if self._fold is None else self._fold.blocks()
        if blocks is None:
            return fold_outcomes(self._asked, self._tables.count)
        self._tables.count(self._asked.records_max)
        return blocks

    def _copy_window(self, scan: TopicScan) -> Reached:
        first, bounds = self._first, self._bounds
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

    def _copy_differing(self, scan: TopicScan, blocks: Blocks) -> Reached:
        """Compare blocks of records with blocks of rows, and copy those that differ."""
        assert self._folded is not None, "it was begun"
        rows = self._folded.result()
        compared = {lane: one.compare(rows.get(lane, {})) for lane, one in blocks.items()}
        with self._tables.copy("copy_proved_outcomes") as copy:
            for lane, found in compared.items():
                for block in sorted(found.proved):
                    copy.write_row((lane, block))
        again = {lane: found.read_again for lane, found in compared.items() if found.read_again is not None}
        self._copy(
            scan,
            {lane: begin for lane, (begin, _) in again.items()},
            {lane: Bounds(self._bounds[lane].low, end) for lane, (_, end) in again.items()},
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
