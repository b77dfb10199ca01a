"""From when on objects are listed beside an earlier proof, and what the next proof says."""

from __future__ import annotations

import pytest

from onceflow_reconciler.slices import Slice
from onceflow_reconciler.verify.hours import LATE_SECONDS, HourSum
from onceflow_reconciler.verify.object_proof import CLOCKS_SECONDS, Compared, compared, listed_since

HOUR = 3600
BEGIN, UNTIL, NOW = 100 * HOUR, 500 * HOUR, 600 * HOUR
HOURS = {200 * HOUR: HourSum(2, 7), 300 * HOUR: HourSum(1, 9)}
BEFORE = Compared(Slice(BEGIN, UNTIL), HOURS)
LATELY = UNTIL - LATE_SECONDS


@pytest.mark.parametrize(
    ("hours", "since"),
    [
        (HOURS, LATELY),
        ({**HOURS, 550 * HOUR: HourSum(5, 5)}, LATELY),
        ({**HOURS, 300 * HOUR: HourSum(1, 8)}, 300 * HOUR - CLOCKS_SECONDS),
        ({300 * HOUR: HourSum(1, 9)}, 200 * HOUR - CLOCKS_SECONDS),
        ({**HOURS, 250 * HOUR: HourSum(1, 1)}, 250 * HOUR - CLOCKS_SECONDS),
        ({**HOURS, 50 * HOUR: HourSum(1, 1)}, BEGIN + HOUR),
        # Nothing is asked about operations of so long ago.
        ({**HOURS, 10 * HOUR: HourSum(1, 1)}, LATELY),
    ],
)
def test_only_what_was_made_since_an_operation_that_differs_is_listed(hours: dict[int, HourSum], since: int) -> None:
    window = Slice(BEGIN + HOUR, NOW)
    assert listed_since(window, BEFORE, hours, hours_since=20 * HOUR) == since
    made = compared(window, BEFORE, hours)
    assert made is not None
    assert made.stretch == Slice(BEGIN, NOW)
    assert Compared.before({"objects": {"acct_1": made.as_json()}}, "acct_1") == made


@pytest.mark.parametrize(
    ("window", "said"),
    [
        # It begins before, in the middle of nowhere, or ends before.
        (Slice(BEGIN - HOUR, NOW), Slice(BEGIN - HOUR, NOW)),
        (Slice(UNTIL + HOUR, NOW), None),
        (Slice(BEGIN, UNTIL - HOUR), None),
        (Slice(BEGIN - HOUR, UNTIL - HOUR), None),
    ],
)
def test_a_window_that_does_not_go_on_from_it_is_listed_whole(window: Slice, said: Slice | None) -> None:
    assert listed_since(window, BEFORE, HOURS, hours_since=0) == window.since
    made = compared(window, BEFORE, HOURS)
    assert (None if made is None else made.stretch) == said


def test_without_an_earlier_proof_everything_is_listed() -> None:
    window = Slice(BEGIN, NOW)
    assert Compared.before(None, "acct_1") is None
    assert Compared.before({"hours": {}}, "acct_1") is None
    assert listed_since(window, None, HOURS, hours_since=0) == BEGIN
    assert compared(window, None, HOURS) == Compared(window, HOURS)
