"""Which stretches of a list are read next; expectations by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest

from onceflow_reconciler.slices import AGAIN_SLICES_MAX, AHEAD_SLICES_MAX, Slice, SliceRules, again, ahead

HOUR, DAY = 3600, 86_400
NOW = 1000 * DAY
RULES = SliceRules(overlap_seconds=600, grace_seconds=120, slice_seconds_max=HOUR)
FIRST_LISTED = NOW - 30 * DAY + HOUR


@pytest.mark.parametrize(
    ("done_until", "slices"),
    [
        (NOW - 180, [Slice(NOW - 780, NOW - 120)]),
        (NOW - 120, [Slice(NOW - 720, NOW - 120)]),
        (NOW + HOUR, []),
        (NOW - 120 - HOUR, [Slice(NOW - 720 - HOUR, NOW - 120)]),
        (
            NOW - 120 - 2 * HOUR,
            [Slice(NOW - 720 - 2 * HOUR, NOW - 120 - HOUR), Slice(NOW - 120 - HOUR, NOW - 120)],
        ),
    ],
)
def test_what_lies_ahead_begins_before_the_cursor_and_ends_before_now(done_until: int, slices: list[Slice]) -> None:
    found = ahead(done_until, now=NOW, rules=RULES)
    assert (list(found.slices), found.out_of_reach) == (slices, None)


def test_what_no_list_shows_any_more_is_named() -> None:
    found = ahead(NOW - 35 * DAY, now=NOW, rules=RULES)
    assert found.out_of_reach == Slice(NOW - 35 * DAY, FIRST_LISTED)
    assert found.slices[0].since == FIRST_LISTED
    endless = ahead(NOW - 35 * DAY, now=NOW, rules=RULES, is_endless=True)
    assert endless.out_of_reach is None
    assert endless.slices[0].since == NOW - 35 * DAY - 600


@pytest.mark.parametrize("days", [1, 4, 5, 29, 400])
def test_after_a_long_outage_there_are_few_and_longer_stretches_without_a_gap(days: int) -> None:
    slices = ahead(NOW - days * DAY, now=NOW, rules=RULES, is_endless=True).slices
    assert len(slices) <= AHEAD_SLICES_MAX
    assert all(one.until == other.since for one, other in pairwise(slices))
    assert (slices[0].since, slices[-1].until) == (NOW - days * DAY - 600, NOW - 120)


def test_a_stretch_is_halved_and_a_second_is_not() -> None:
    assert Slice(10, 15).halves() == (Slice(12, 15), Slice(10, 12))
    assert Slice(10, 11).halves() is None


def test_what_is_read_once_more_is_bounded_in_reach_and_in_one_go() -> None:
    assert again(NOW - 90 * 60, NOW, now=NOW, rules=RULES) == (
        Slice(NOW - 90 * 60, NOW - 30 * 60),
        Slice(NOW - 30 * 60, NOW),
    )
    far = again(0, NOW, now=NOW, rules=RULES)
    assert (len(far), far[0].since) == (AGAIN_SLICES_MAX, FIRST_LISTED)
    assert again(NOW, NOW - HOUR, now=NOW, rules=RULES) == ()
