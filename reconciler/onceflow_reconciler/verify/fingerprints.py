"""Positions against the records before them: the log must hold what was read.

Rule: a position and its fingerprint are read in one row, so that work which goes on meanwhile is no difference; what the log does
not hold any more is said by its bounds, not here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from onceflow_processor.log_reader import LogReader
from onceflow_processor.records import Partition
from onceflow_reconciler.verify.question import Question
from onceflow_reconciler.verify.tables import Tables

READ_SECONDS_MAX: Final = 30.0
"""For each partition."""


def judge_fingerprints(
    question: Question, tables: Tables, topics: Mapping[str, Mapping[str, Any]], *, rows: Iterable[tuple[Any, ...]]
) -> None:
    """Note positions whose fingerprint is not that of the last record before them.

    Args:
        question: what is asked.
        tables: that are written to.
        topics: what was noted of each topic.
        rows: topic id, partition, next offset and fingerprint, as they were before the topics were read.

    Raises:
        Failure: the broker does not answer.
    """
    names = {topics[name]["id"]: name for name in question.event_topics}
    asked = [row for row in rows if row[0] in names]
    if not asked:
        return
    with LogReader(
        question.kafka, group=question.group, deadline_seconds=READ_SECONDS_MAX, tick=lambda: tables.count(0)
    ) as log:
        for topic_id, number, next_offset, fingerprint in asked:
            log.renew(READ_SECONDS_MAX)
            place = Partition(names[topic_id], number)
            bounds = log.bounds(place)
            if not bounds.low < next_offset <= bounds.high:
                continue
            found = log.fingerprint_before(place, next_offset, bounds=bounds)
            if found is not None and found != fingerprint:
                subject = f"{names[topic_id]}/{number} of {topic_id}"
                detail = f"the record before offset {next_offset} is not the one that was read last"
                tables.unexplained("position_differs", subject, detail)
