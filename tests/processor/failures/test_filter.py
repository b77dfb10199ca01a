"""What is wrong with a filter is told at once, before the database hears of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from onceflow_processor.failures.filter import Filter, faults_of, faults_of_ids, read_offset_range

EARLY, LATE = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    "wanted",
    [
        Filter(),
        Filter(type="invoice.*", order_key="acct_1/*"),
        Filter(type="' OR 1=1--", handler="a, b", order_key="acct_1/ключ"),
        Filter(topic="t", partition=0, from_offset=5, to_offset=5, since=EARLY, until=LATE),
        Filter(group="invoice.paid bookkeeping KeyError", account="acct_1"),
        Filter(without_identity=True, topic="t", partition=1, from_offset=0),
    ],
)
def test_a_filter_that_can_be_used(wanted: Filter) -> None:
    assert faults_of(wanted) == []


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"type": "a\0b"}, "--type holds a NUL character"),
        ({"order_key": ""}, "--key is empty"),
        ({"type": "*.paid"}, "--type takes a type, or a prefix and .*, such as invoice.*"),
        ({"type": "*"}, "--type takes a type, or a prefix and .*, such as invoice.*"),
        ({"group": "invoice.* - KeyError"}, "--group is compared as a whole: * stands for nothing there"),
        ({"error": "x" * 10_000_000}, "--error is longer than 1000 characters"),
        ({"handler": "\udcff"}, "--handler holds characters that cannot be printed"),
        ({"event_id": "evt_1\x1b[2J"}, "--event-id holds characters that cannot be printed"),
        ({"topic": "t", "partition": -1}, "--partition is -1; it is a number from 0 to 2147483647"),
        ({"topic": "t", "partition": 2**31}, "--partition is 2147483648; it is a number from 0 to 2147483647"),
        (
            {"topic": "t", "partition": 0, "from_offset": -5},
            "--offset-range is -5; it is a number from 0 to 9223372036854775807",
        ),
        (
            {"topic": "t", "partition": 0, "to_offset": 2**63},
            "--offset-range is 9223372036854775808; it is a number from 0 to 9223372036854775807",
        ),
        (
            {"topic": "t", "partition": 0, "from_offset": 9, "to_offset": 3},
            "--offset-range begins at 9 and ends before it, at 3",
        ),
        ({"since": LATE, "until": EARLY}, "--since is not before --until"),
        ({"since": EARLY, "until": EARLY}, "--since is not before --until"),
        ({"partition": 0}, "--partition needs --topic"),
        ({"topic": "t", "to_offset": 3}, "--offset-range needs --topic and --partition"),
        (
            {"group": "a b c", "error": "KeyError"},
            "--group says type, handler and error already; leave out --type, --handler and --error",
        ),
        (
            {"without_identity": True, "account": "acct_1"},
            "--without-identity contradicts --account, --event-id and --key",
        ),
    ],
)
def test_one_fault(given: dict[str, Any], fault: str) -> None:
    assert faults_of(Filter(**given)) == [fault]


def test_all_faults_at_once() -> None:
    wanted = Filter(type="", partition=-1, from_offset=-5, to_offset=-6, since=LATE, until=EARLY)
    assert len(faults_of(wanted)) == 7


def test_ids() -> None:
    assert faults_of_ids(["evt_1", "topic/0/17"]) == []
    assert faults_of_ids(["evt_1", "", "a\0"]) == ["an id is empty", "an id holds a NUL character"]
    assert faults_of_ids(["evt_1"] * 1_001) == ["more than 1000 ids were given; use a filter"]


def test_what_names_no_row_in_particular() -> None:
    assert Filter().is_empty
    assert Filter(decided=True).is_empty
    assert not Filter(without_identity=True).is_empty
    assert not Filter(since=EARLY).is_empty


@pytest.mark.parametrize(
    ("text", "ends"),
    [("5", (5, 5)), ("5..9", (5, 9)), ("5..", (5, None)), ("..9", (None, 9)), ("-5..9", (-5, 9)), ("9..5", (9, 5))],
)
def test_a_range_of_offsets(text: str, ends: tuple[int | None, int | None]) -> None:
    assert read_offset_range(text) == ends


@pytest.mark.parametrize("text", ["", "..", "a..b", "1...2", "1..2..3", "1-2", "0x10"])
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(ValueError):
        read_offset_range(text)
