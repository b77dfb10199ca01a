"""The pure steps of the comparison; the whole of it is shown in test_session and test_service."""

from __future__ import annotations

import uuid

import pytest

from onceflow_processor.relay.cursor import OutcomeRecord, StrangeRecord, TailRecord
from onceflow_processor.relay.inspection import check_shape, skip_published
from onceflow_processor.relay.lane_store import LaneRow
from onceflow_processor.relay.topic_tail import TopicFacts
from onceflow_schemas.failure import Misconfigured


def record(seq: int, *, refill: bool = False) -> OutcomeRecord:
    return OutcomeRecord(seq * 10, seq, uuid.UUID(int=seq), refill=refill)


def skipped(records: list[TailRecord], seq: int) -> tuple[bool, list[TailRecord]]:
    seen, rest = skip_published(iter(records), seq)
    return seen, list(rest)


def test_everything_up_to_the_published_record_is_left_out() -> None:
    assert skipped([record(1), record(2), record(3), record(4)], 2) == (True, [record(3), record(4)])
    assert skipped([record(1), StrangeRecord(11), record(2)], 2) == (True, [])
    assert skipped([record(5), record(6)], 2) == (False, [record(5), record(6)])
    assert skipped([], 2) == (False, [])


def test_what_lies_between_the_published_record_and_the_next_one_is_kept() -> None:
    strange, refill = StrangeRecord(25), record(1, refill=True)
    assert skipped([record(2), strange, refill, record(3)], 2) == (True, [strange, refill, record(3)])
    assert skipped([refill, strange], 2) == (False, [refill, strange])


def row(lane: int) -> LaneRow:
    return LaneRow(lane, 0, 0, "T", "ok", "")


def test_lanes_must_be_the_partitions_of_the_topic() -> None:
    check_shape([row(0), row(1)], TopicFacts("T", 2), topic="t")
    with pytest.raises(Misconfigured, match="lanes_missing"):
        check_shape([], TopicFacts("T", 2), topic="t")
    for rows in ([row(0)], [row(0), row(1), row(2)], [row(1), row(2)]):
        with pytest.raises(Misconfigured, match="topic_mismatch"):
            check_shape(rows, TopicFacts("T", 2), topic="t")
