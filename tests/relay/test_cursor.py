"""The table of agreements and disagreements, row by row, and the same against a model of a partition."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow_processor.relay.cursor import (
    EMPTY,
    Agrees,
    Code,
    Cursor,
    Disagrees,
    Extent,
    Foreign,
    Lane,
    Mark,
    OutcomeRecord,
    StrangeRecord,
    TailRecord,
    Unknown,
    Unsettled,
    Verdict,
    compare,
    decode_cursor,
    encode_metadata,
    judge,
    judge_head,
    read_record,
)
from onceflow_schemas.failure import FAILURES

A, B, C = (uuid.UUID(int=number) for number in (10, 11, 12))
KNOWN = {9: uuid.UUID(int=9), 10: A, 11: B, 12: C}
LANE = Lane(head=12, published=10)
EXTENT = Extent(low=0, stable_end=22, end=22)
LAST = OutcomeRecord(offset=20, seq=10, ce_id=A)
MARK = Mark(next_offset=21, seq=10, ce_id=A)
ACCEPTED = Mark(next_offset=21, seq=10, ce_id=A, accepted=True)
ACCEPTED_0 = Mark(next_offset=21, seq=0, ce_id=uuid.UUID(int=0), accepted=True)


@pytest.mark.parametrize(
    ("cursor", "last", "extent", "lane", "expected"),
    [
        pytest.param(MARK, LAST, EXTENT, LANE, Agrees(10, MARK), id="all three agree"),
        pytest.param(Foreign(5, ""), LAST, EXTENT, LANE, "stopped:cursor_moved", id="a plain commit, lower"),
        pytest.param(Foreign(21, ""), LAST, EXTENT, LANE, "stopped:cursor_moved", id="a plain commit, same offset"),
        pytest.param(Foreign(500, "x"), LAST, EXTENT, LANE, "stopped:cursor_moved", id="a plain commit, beyond"),
        pytest.param(Mark(23, 10, A), LAST, EXTENT, LANE, "stopped:tail_lost", id="the log ends before the cursor"),
        pytest.param(Mark(18, 9, KNOWN[9]), LAST, EXTENT, LANE, "stopped:cursor_moved", id="ours, but lower"),
        pytest.param(Mark(20, 10, A), LAST, EXTENT, LANE, "stopped:cursor_moved", id="right sequence, offset too low"),
        pytest.param(Mark(22, 10, A), LAST, EXTENT, LANE, "stopped:cursor_moved", id="right sequence, offset too high"),
        pytest.param(Mark(22, 11, B), LAST, EXTENT, LANE, "stopped:tail_lost", id="the cursor's record is gone"),
        pytest.param(Mark(21, 10, B), LAST, EXTENT, LANE, "stopped:diverged", id="cursor names another id"),
        pytest.param(Mark(21, 9, A), LAST, EXTENT, LANE, "stopped:diverged", id="cursor names another sequence"),
        pytest.param(MARK, StrangeRecord(20), EXTENT, LANE, "stopped:diverged", id="somebody else's record is last"),
        pytest.param(MARK, None, Extent(21, 22, 22), LANE, Agrees(10, MARK), id="retention took the record"),
        pytest.param(MARK, None, Extent(22, 22, 22), LANE, Agrees(10, MARK), id="retention took its marker too"),
        pytest.param(MARK, None, Extent(20, 22, 22), LANE, "stopped:tail_lost", id="no record where one must be"),
        pytest.param(MARK, LAST, Extent(0, 22, 24), LANE, "unsettled", id="an open transaction"),
        pytest.param(Mark(25, 11, B), LAST, Extent(0, 22, 24), LANE, "stopped:tail_lost", id="lost, whatever is open"),
        pytest.param(Unknown(), LAST, EXTENT, LANE, Agrees(10, MARK), id="no cursor: the last record decides"),
        pytest.param(Unknown(), StrangeRecord(20), EXTENT, LANE, "stopped:diverged", id="no cursor, strange record"),
        pytest.param(ACCEPTED, StrangeRecord(20), EXTENT, LANE, Agrees(10, ACCEPTED), id="somebody else's is accepted"),
        pytest.param(ACCEPTED, StrangeRecord(21), EXTENT, LANE, "stopped:diverged", id="a stranger came after that"),
        pytest.param(ACCEPTED, StrangeRecord(19), EXTENT, LANE, "stopped:diverged", id="not what was accepted"),
        pytest.param(ACCEPTED_0, StrangeRecord(20), EXTENT, Lane(5, 0), Agrees(0, ACCEPTED_0), id="accepted, none ours"),
        pytest.param(ACCEPTED_0, StrangeRecord(20), EXTENT, LANE, "stopped:tail_lost", id="accepted, and then published"),
        pytest.param(Unknown(), LAST, Extent(0, 22, 24), LANE, "unsettled", id="no cursor, open transaction"),
        pytest.param(Unknown(), None, Extent(0, 0, 0), Lane(5, 0), Agrees(0, None), id="a new lane"),
        pytest.param(Unknown(), None, Extent(0, 7, 7), Lane(5, 0), Agrees(0, None), id="only aborted records so far"),
        pytest.param(Unknown(), None, Extent(0, 0, 0), LANE, "stopped:tail_lost", id="published, but the topic is empty"),
        pytest.param(
            Unknown(), None, Extent(30, 30, 30), LANE, Agrees(10, Mark(30, 10, A)), id="cursor and records expired"
        ),
        pytest.param(Unknown(), None, Extent(30, 30, 30), Lane(0, 0), "behind", id="records were there, none is known"),
        pytest.param(
            Mark(21, 11, B), OutcomeRecord(20, 11, B), EXTENT, LANE, Agrees(11, Mark(21, 11, B)), id="ahead of published"
        ),
        pytest.param(Mark(21, 13, B), OutcomeRecord(20, 13, B), EXTENT, LANE, "behind", id="ahead of the head"),
        pytest.param(Unknown(), OutcomeRecord(20, 13, B), EXTENT, LANE, "behind", id="no cursor, ahead of the head"),
        pytest.param(
            Mark(21, 9, KNOWN[9]), OutcomeRecord(20, 9, KNOWN[9]), EXTENT, LANE, "stopped:tail_lost",
            id="topic and cursor were put back together",
        ),
        pytest.param(Unknown(), OutcomeRecord(20, 9, A), EXTENT, LANE, "stopped:tail_lost", id="no cursor, fewer records"),
        pytest.param(Mark(21, 10, B), OutcomeRecord(20, 10, B), EXTENT, LANE, "stopped:diverged", id="another id in the row"),
        pytest.param(
            Mark(21, 11, A), OutcomeRecord(20, 11, A), EXTENT, LANE, "stopped:diverged", id="another id above published"
        ),
    ],
)  # fmt: skip
def test_table(cursor: Cursor, last: TailRecord | None, extent: Extent, lane: Lane, expected: Verdict | str) -> None:
    found = judge(cursor, last, extent=extent, lane=lane, known=KNOWN)
    if isinstance(expected, str):
        shown = "unsettled" if isinstance(found, Unsettled) else getattr(found, "state", found)
        assert expected == shown
    else:
        assert expected == found


def test_a_pruned_row_is_no_divergence_but_a_missing_one_is() -> None:
    assert judge(MARK, LAST, extent=EXTENT, lane=LANE, known={}) == Agrees(10, MARK)
    ahead = judge(Mark(21, 11, B), OutcomeRecord(20, 11, B), extent=EXTENT, lane=LANE, known={})
    assert isinstance(ahead, Disagrees)
    assert ahead.code == "diverged"


def test_expired_cursor_of_a_pruned_row_cannot_be_committed_again() -> None:
    assert judge(Unknown(), None, extent=Extent(30, 30, 30), lane=LANE, known={}) == Agrees(10, None)


@pytest.mark.parametrize(
    ("offset", "metadata", "expected"),
    [
        (-1001, None, Unknown()),
        (-1001, "", Unknown()),
        (21, f"10 {A}", Mark(21, 10, A)),
        (1, f"1 {A}", Mark(1, 1, A)),
        (0, f"1 {A}", Foreign(0, f"1 {A}")),
        (21, None, Foreign(21, "")),
        (21, "", Foreign(21, "")),
        (21, f"010 {A}", Foreign(21, f"010 {A}")),
        (21, f"0 {A}", Foreign(21, f"0 {A}")),
        (21, f"-1 {A}", Foreign(21, f"-1 {A}")),
        (21, f"10 {A} ", Foreign(21, f"10 {A} ")),
        (21, f"10 {A}\n", Foreign(21, f"10 {A}\n")),
        (21, "10 not-an-id", Foreign(21, "10 not-an-id")),
        (21, f"١٠ {A}", Foreign(21, f"١٠ {A}")),
    ],
)
def test_decoding(offset: int, metadata: str | None, expected: Cursor) -> None:
    assert expected == decode_cursor(offset, metadata)


def test_every_code_has_a_next_step_and_a_state_that_the_table_takes() -> None:
    for code in get_args(Code):
        assert FAILURES[code].actor == "operator"
        state = Disagrees(code, "d").state
        assert re.fullmatch("behind|stopped:[a-z_]+", state), state


@pytest.mark.parametrize("mark", [MARK, ACCEPTED, ACCEPTED_0])
def test_a_cursor_is_read_back_as_it_was_written(mark: Mark) -> None:
    assert decode_cursor(mark.next_offset, encode_metadata(mark)) == mark


def test_a_cursor_that_says_that_nothing_is_known() -> None:
    assert (encode_metadata(EMPTY), decode_cursor(0, "none")) == ("none", Unknown())
    assert decode_cursor(1, "none") == Foreign(1, "none")


def test_sequence_zero_is_only_ever_accepted() -> None:
    metadata = f"0 {uuid.UUID(int=0)}"
    assert decode_cursor(21, metadata) == Foreign(21, metadata)


def test_metadata_is_sequence_and_id() -> None:
    assert encode_metadata(Mark(21, 10, A)) == "10 00000000-0000-0000-0000-00000000000a"


def test_reading_a_record() -> None:
    headers: list[tuple[str, bytes | None]] = [
        ("ce_id", str(A).encode()),
        ("onceflow_lane", b"2"),
        ("onceflow_sequence", b"10"),
        ("onceflow_sequence", b"99"),
    ]
    assert read_record(20, lane=2, headers=headers) == OutcomeRecord(20, 10, A)
    assert read_record(20, lane=3, headers=headers) == StrangeRecord(20)
    assert read_record(20, lane=2, headers=[*headers, ("onceflow_refill", b"1")]) == OutcomeRecord(
        20, 10, A, refill=True
    )
    assert read_record(20, lane=2, headers=None) == StrangeRecord(20)
    assert read_record(20, lane=2, headers=[("ce_id", None), *headers]) == StrangeRecord(20)
    assert read_record(20, lane=2, headers=[("onceflow_sequence", b"x"), *headers]) == StrangeRecord(20)
    assert read_record(20, lane=2, headers=[("ce_id", b"\xff"), *headers]) == StrangeRecord(20)


def test_comparing_a_stretch() -> None:
    ten, eleven, twelve = OutcomeRecord(20, 10, A), OutcomeRecord(24, 11, B), OutcomeRecord(25, 12, C)
    refill = OutcomeRecord(26, 3, C, refill=True)
    assert compare(10, [ten, eleven, refill, twelve], known=KNOWN) == 13
    assert compare(10, [], known=KNOWN) == 10
    wrong: list[tuple[int, list[TailRecord]]] = [
        (10, [ten, twelve]),
        (10, [ten, ten]),
        (10, [eleven, ten]),
        (11, [OutcomeRecord(24, 11, C)]),
        (10, [ten, StrangeRecord(21)]),
        (13, [OutcomeRecord(30, 13, A)]),
    ]
    for expected_seq, records in wrong:
        found = compare(expected_seq, records, known=KNOWN)
        assert isinstance(found, Disagrees), records
        assert found.code == "diverged"


@pytest.mark.parametrize(
    ("cursor", "last", "extent", "lane", "expected"),
    [
        pytest.param(MARK, LAST, EXTENT, LANE, Agrees(10, MARK), id="agrees"),
        pytest.param(Mark(30, 12, C), LAST, EXTENT, LANE, Agrees(12, Mark(30, 12, C)), id="cursor first"),
        pytest.param(
            MARK, OutcomeRecord(25, 12, C), EXTENT, LANE, Agrees(12, Mark(26, 12, C)), id="record first"
        ),
        pytest.param(Mark(30, 13, C), LAST, EXTENT, LANE, "behind", id="cursor ahead of the head"),
        pytest.param(Unknown(), OutcomeRecord(25, 13, C), EXTENT, LANE, "behind", id="record ahead of the head"),
        pytest.param(Foreign(3, ""), LAST, EXTENT, LANE, Agrees(10, MARK), id="a moved cursor is the relay's to report"),
        pytest.param(Foreign(3, ""), StrangeRecord(20), EXTENT, LANE, "stopped:diverged", id="nothing to rely on"),
        pytest.param(MARK, StrangeRecord(20), EXTENT, LANE, Agrees(10, MARK), id="the cursor is enough"),
        pytest.param(Unknown(), OutcomeRecord(20, 10, B), EXTENT, LANE, "stopped:diverged", id="another id"),
        pytest.param(Unknown(), None, Extent(0, 0, 0), Lane(5, 0), Agrees(0, None), id="a new lane"),
        pytest.param(Unknown(), None, Extent(9, 9, 9), Lane(0, 0), "behind", id="records were there"),
        pytest.param(Unknown(), None, Extent(0, 0, 0), LANE, Agrees(10, None), id="a lost tail is the relay's to report"),
    ],
)  # fmt: skip
def test_head_table(
    cursor: Cursor, last: TailRecord | None, extent: Extent, lane: Lane, expected: Verdict | str
) -> None:
    found = judge_head(cursor, last, extent=extent, lane=lane, known=KNOWN)
    if isinstance(expected, str):
        assert isinstance(found, Disagrees)
        assert expected == found.state
    else:
        assert expected == found


def row_id(seq: int, generation: int = 0) -> uuid.UUID:
    return uuid.UUID(int=generation * 1_000_000 + seq)


@dataclass
class Partition:
    """A model of one lane: the log (None is a marker or an aborted record), the cursor and the row of the database."""

    log: list[int | None] = field(default_factory=list)
    low: int = 0
    cursor: Cursor = field(default_factory=Unknown)
    truth: int = 0
    published: int = 0
    head: int = 0

    def publish(self, count: int, *, noted: bool) -> None:
        self.head = max(self.head, self.truth + count)
        self.log += range(self.truth + 1, self.truth + count + 1)
        self.truth += count
        self.cursor = Mark(len(self.log), self.truth, row_id(self.truth))
        self.log.append(None)
        if noted:
            self.published = self.truth

    def last(self) -> OutcomeRecord | None:
        for offset in range(len(self.log) - 1, self.low - 1, -1):
            seq = self.log[offset]
            if seq is not None:
                return OutcomeRecord(offset, seq, row_id(seq))
        return None

    def judge(self) -> Verdict:
        known = {seq: row_id(seq) for seq in range(1, self.head + 1)}
        extent = Extent(self.low, len(self.log), len(self.log))
        return judge(self.cursor, self.last(), extent=extent, lane=Lane(self.head, self.published), known=known)


def apply(model: Partition, step: tuple[str, int]) -> None:
    match step:
        case ("publish", count):
            model.publish(count, noted=True)
        case ("publish and die", count):
            model.publish(count, noted=False)
        case ("abort", count):
            model.log += [None] * (count + 1)
        case ("hand out", count):
            model.head += count
        case ("retention", _) if model.truth == 0:
            pass  # Aborted records alone that expire look like records that nobody knows of: a row of the table above.
        case ("retention", count):
            # Segments go as wholes; what is not marked as published is younger than any retention.
            safe = [offset for offset, seq in enumerate(model.log) if seq is not None and seq > model.published]
            model.low = min(max(model.low, count), safe[0] if safe else len(model.log))
        case _:
            raise AssertionError(step)


STEPS = st.lists(
    st.tuples(st.sampled_from(["publish", "publish and die", "abort", "hand out", "retention"]), st.integers(1, 9)),
    max_size=14,
)


@given(steps=STEPS)
@settings(max_examples=400, deadline=None)
def test_what_a_relay_leaves_is_always_agreed_on(steps: list[tuple[str, int]]) -> None:
    model = Partition()
    for step in steps:
        apply(model, step)
    found = model.judge()
    assert isinstance(found, Agrees), found
    assert found.seq == model.truth


@given(steps=STEPS)
@settings(max_examples=400, deadline=None)
def test_a_deleted_group_never_changes_the_position(steps: list[tuple[str, int]]) -> None:
    model = Partition()
    for step in steps:
        apply(model, step)
    model.cursor = Unknown()
    found = model.judge()
    assert isinstance(found, Agrees), found
    assert found.seq == model.truth


@given(steps=STEPS, offset=st.integers(0, 120), metadata=st.sampled_from(["", "1", "reset by an operator"]))
@settings(max_examples=300, deadline=None)
def test_a_foreign_commit_always_stops(steps: list[tuple[str, int]], offset: int, metadata: str) -> None:
    model = Partition()
    for step in steps:
        apply(model, step)
    model.cursor = decode_cursor(offset, metadata)
    found = model.judge()
    assert isinstance(found, Disagrees)
    assert found.code == "cursor_moved"


@given(steps=STEPS, offset=st.integers(1, 120), seq=st.integers(1, 120))
@settings(max_examples=400, deadline=None)
def test_a_cursor_copied_from_another_place_never_moves_the_position(
    steps: list[tuple[str, int]], offset: int, seq: int
) -> None:
    model = Partition()
    for step in steps:
        apply(model, step)
    model.cursor = Mark(offset, seq, row_id(seq))
    found = model.judge()
    # Without any record left the cursor cannot be checked against one; it must then still name a row that exists.
    if isinstance(found, Agrees) and model.last() is not None:
        assert found.seq == model.truth


@given(steps=STEPS, cut=st.integers(0, 120))
@settings(max_examples=400, deadline=None)
def test_a_cut_log_never_moves_the_position(steps: list[tuple[str, int]], cut: int) -> None:
    model = Partition()
    for step in steps:
        apply(model, step)
    del model.log[max(cut, model.low) :]
    found = model.judge()
    if isinstance(found, Agrees):
        assert found.seq == model.truth
    else:
        assert isinstance(found, Disagrees)
        assert found.code == "tail_lost"


@given(steps=STEPS, back=st.integers(1, 60))
@settings(max_examples=400, deadline=None)
def test_a_restored_database_is_behind_or_right(steps: list[tuple[str, int]], back: int) -> None:
    model = Partition()
    for step in steps:
        apply(model, step)
    model.head = max(model.head - back, 0)
    model.published = min(model.published, model.head)
    found = model.judge()
    if model.head < model.truth:
        assert isinstance(found, Disagrees)
        assert found.code == "behind"
    elif isinstance(found, Agrees):
        assert found.seq == model.truth
