"""A stored position against the log: every disagreement has its code, nothing is clamped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow_processor.position import (
    Begin,
    LogBounds,
    Position,
    Stop,
    fingerprint_offset,
    judge_first_record,
    judge_position,
)
from onceflow_schemas.failure import FAILURES
from tests.schemas.stripe_bodies import CASES

PRINT = "99 1767225600000 abc"


def position(next_offset: int, fingerprint: str | None = PRINT) -> Position:
    return Position("topic-id", 3, next_offset, fingerprint)


@pytest.mark.parametrize(
    ("next_offset", "fingerprint", "low", "high", "expected"),
    [
        # Never read: begin where the position says, at an empty log too.
        (0, None, 0, 0, Begin(0, 0, None)),
        (5, None, 0, 10, Begin(5, 5, None)),
        # The record before the position is there: it is read again and compared.
        (100, PRINT, 0, 200, Begin(99, 100, PRINT)),
        (100, PRINT, 99, 100, Begin(99, 100, PRINT)),
        # A transaction marker lies between that record and the position.
        (101, PRINT, 0, 200, Begin(99, 101, PRINT)),
        # Retention took the record before the position, and nothing unread.
        (100, PRINT, 100, 100, Begin(100, 100, None)),
        (100, PRINT, 100, 200, Begin(100, 100, None)),
    ],
)
def test_positions_that_the_log_agrees_with(
    next_offset: int, fingerprint: str | None, low: int, high: int, expected: Begin
) -> None:
    assert judge_position(position(next_offset, fingerprint), LogBounds(low, high)) == expected


@pytest.mark.parametrize(
    ("next_offset", "low", "high", "code", "words"),
    [
        (100, 0, 99, "tail_lost", "ends at 99"),
        (100, 0, 0, "tail_lost", "before 100"),
        (100, 500, 600, "log_start_passed", "100 to 499"),
        (100, 101, 101, "log_start_passed", "100 to 100"),
    ],
)
def test_positions_that_the_log_contradicts(next_offset: int, low: int, high: int, code: str, words: str) -> None:
    found = judge_position(position(next_offset), LogBounds(low, high))
    assert isinstance(found, Stop)
    assert found.code == code
    assert words in found.detail


BEGIN = Begin(99, 100, PRINT)


def test_a_first_record_that_is_the_one_that_was_read() -> None:
    assert judge_first_record(BEGIN, offset=99, fingerprint=PRINT, low=0) is None


def test_a_first_record_without_anything_to_compare() -> None:
    assert judge_first_record(Begin(0, 0, None), offset=0, fingerprint="0 1 x", low=0) is None


@pytest.mark.parametrize(
    ("offset", "fingerprint", "low", "code"),
    [
        (99, "99 1767225600000 other", 99, "fingerprint_differs"),
        (99, "99 1767225600001 abc", 0, "fingerprint_differs"),
        (100, "100 1 x", 99, "fingerprint_differs"),
        (100, "100 1 x", 0, "fingerprint_differs"),
        (150, "150 1 x", 150, "log_start_passed"),
    ],
)
def test_a_first_record_that_is_another(offset: int, fingerprint: str, low: int, code: str) -> None:
    found = judge_first_record(BEGIN, offset=offset, fingerprint=fingerprint, low=low)
    assert found is not None
    assert found.code == code


def test_retention_may_take_the_record_while_it_is_looked_for() -> None:
    assert judge_first_record(BEGIN, offset=100, fingerprint="100 1 x", low=100) is None
    assert judge_first_record(BEGIN, offset=103, fingerprint="103 1 x", low=100) is None


@CASES
@given(st.integers(0, 6), st.none() | st.integers(1, 3), st.integers(0, 6), st.integers(0, 6))
def test_nothing_unread_is_passed_silently(next_offset: int, back: int | None, low: int, size: int) -> None:
    """Reading begins at or before the position, inside the log, or not at all."""
    before = -1 if back is None else next_offset - back
    stored = position(next_offset, f"{before} 1 x" if before >= 0 else None)
    found = judge_position(stored, LogBounds(low, low + size))
    if isinstance(found, Stop):
        assert found.code in FAILURES
        assert not low <= next_offset <= low + size
    else:
        assert low <= found.offset <= next_offset <= low + size
        compares = before >= low
        assert found == Begin(
            before if compares else next_offset, next_offset, stored.fingerprint if compares else None
        )


def test_a_fingerprint_names_its_offset() -> None:
    assert fingerprint_offset("1099511627776 -1 abc") == 2**40


def test_a_record_that_is_gone_from_a_compacted_log_says_nothing() -> None:
    found = judge_first_record(BEGIN, offset=100, fingerprint="100 1 x", low=0, compacted=True)
    assert found is None
    other = judge_first_record(BEGIN, offset=99, fingerprint="99 1 x", low=0, compacted=True)
    assert isinstance(other, Stop)
    assert other.code == "fingerprint_differs"
