"""Looks closely at records that are taken for repeats of an event that came before.

Rule: what the processor would keep in quarantine is no repeat: a record that nobody vouches for, a stranger's copy, other content.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final

from onceflow_processor.admission import Rules, admit, glimpse_api_version, stranger
from onceflow_processor.conflict import is_conflict
from onceflow_processor.records import Record
from onceflow_reconciler.verify.page_lines import record_of
from onceflow_reconciler.verify.question import Question
from onceflow_reconciler.verify.tables import Tables
from onceflow_reconciler.verify.topic_scan import Bounds, opened

REPEATS_MAX: Final = 50_000
"""Records that are remembered at a time."""

_First = tuple[bytes | None, str | None]


def judge_repeats(question: Question, tables: Tables, topics: Mapping[str, Mapping[str, Any]]) -> None:
    """Note those that are none.

    Args:
        question: what is asked.
        tables: that are written to.
        topics: what was noted of each topic, as in ``EventLedger.topics``.

    Raises:
        Failure, psycopg.Error: a ledger cannot be read; nothing is proved.
    """
    names = {told["id"]: name for name, told in topics.items()}
    now = datetime.now(UTC)
    last: tuple[str, int, int] = ("", 0, 0)
    while rows := tables.rows("repeats", topic_id=last[0], partition=last[1], offset=last[2], rows_max=REPEATS_MAX):
        for topic_id, part in groupby(rows, key=lambda row: row[0]):
            firsts: dict[tuple[int, int], _First] = {tuple(row[1:3]): (row[3], row[4]) for row in part}
            for record in _read(question, names[topic_id], firsts):
                place = (record.partition.number, record.offset)
                why = fault_of(record, first=firsts[place], rules=question.rules, now=now)
                if why is not None:
                    given = {"topic_id": topic_id, "partition": place[0], "offset": place[1]}
                    tables.run("add_unlike", **given, why=why)
        last = rows[-1][:3]
    tables.run("settle_repeats")


def fault_of(record: Record, *, first: _First, rules: Rules, now: datetime) -> str | None:
    """Return why a record is no repeat of its event; None when it is one.

    Args:
        record: as it was read.
        first: digest and API version of the event's marker; None where it has none.
        rules: what the deployment takes.
        now: aware.
    """
    item = admit(record, rules=rules, now=now)
    if item.event is None:
        return "nobody vouches for it"
    if stranger(record, event=item.event, envelope=item.take_envelope()) is not None:
        return "it is a copy under another key"
    digest, version = first
    if digest is not None and is_conflict(
        item.body,
        digest=item.event.body_sha256,
        api_version=glimpse_api_version(item.body),
        first_digest=digest,
        first_api_version=version,
    ):
        return "its event came before with other content"
    return None


def _read(question: Question, topic: str, wanted: Mapping[tuple[int, int], object]) -> Iterator[Record]:
    offsets: dict[int, list[int]] = {}
    for partition, offset in wanted:
        offsets.setdefault(partition, []).append(offset)
    first = {partition: min(found) for partition, found in offsets.items()}
    bounds = {partition: Bounds(first[partition], max(found) + 1) for partition, found in offsets.items()}
    with opened(question.kafka, topic=topic, group=question.group) as scan:
        for page in scan.messages(first, bounds):
            for message in page:
                if (message.partition(), message.offset()) in wanted:
                    yield record_of(topic, message)
