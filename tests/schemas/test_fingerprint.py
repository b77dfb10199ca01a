"""Fingerprints of records: whatever differs between two records shows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onceflow_schemas.fingerprint import record_fingerprint
from tests.schemas.stripe_bodies import CASES

PART = st.none() | st.binary(max_size=6)
RECORD = st.tuples(st.integers(0, 3), st.integers(-1, 1), PART, PART)


def fingerprint(record: tuple[int, int, bytes | None, bytes | None]) -> str:
    offset, timestamp_ms, key, value = record
    return record_fingerprint(offset=offset, timestamp_ms=timestamp_ms, key=key, value=value)


def test_it_names_offset_and_time() -> None:
    made = record_fingerprint(offset=41, timestamp_ms=-1, key=None, value=b"")
    assert made.split(" ")[:2] == ["41", "-1"]
    assert len(made.split(" ")[2]) == 64


@CASES
@given(RECORD, RECORD)
def test_two_records_have_one_fingerprint_only_when_they_are_equal(
    one: tuple[int, int, bytes | None, bytes | None], other: tuple[int, int, bytes | None, bytes | None]
) -> None:
    assert (fingerprint(one) == fingerprint(other)) == (one == other)


def test_bytes_that_move_from_the_key_to_the_value_show() -> None:
    assert fingerprint((1, 1, b"ab", b"c")) != fingerprint((1, 1, b"a", b"bc"))
    assert fingerprint((1, 1, b"a\x01b", b"c")) != fingerprint((1, 1, b"a", b"b\x01c"))
    assert fingerprint((1, 1, None, b"")) != fingerprint((1, 1, b"", None))
