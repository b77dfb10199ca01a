"""The truth about a small snapshot, by hand; and that a proof which says anything else is told."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.checker.small_world import PAID_1, SOUND, identity
from tests.checker.snapshot import Identity, Lane, Progress, Snapshot
from tests.checker.truth import Truth, compare, truth_of

LISTED = [identity(f"evt_{number}") for number in range(1, 6)]
NO_ID = [identity("sha256:odd")]
"""A body without an id is kept and counted, and Stripe lists no such thing."""


def differences(snapshot: Snapshot, listed: list[Identity] = LISTED, **given: Any) -> dict[str, int]:
    return dict(truth_of(snapshot, listed, **{"too_old": NO_ID, **given}).differences)


def test_the_sums_of_a_sound_snapshot() -> None:
    records = {"processed": 4, "duplicate": 1, "ignored": 1, "quarantined": 1}
    expected = Truth(events=6, records=records, written=3, published=3, differences={})
    assert expected == truth_of(SOUND, LISTED, too_old=NO_ID)


LOST_TAIL = replace(SOUND, progress=(Progress(0, 4, 1, None, 0, 3), Progress(1, 3, 1, None, 0, 3)))
NOT_READ = replace(SOUND, progress=(Progress(0, 4, 1, None, 0, 4), Progress(1, 2, 1, None, 0, 3)), quarantine=())
REFILLED = replace(
    SOUND,
    published=(*(one for one in SOUND.published if one.seq != 2), replace(SOUND.published[1], offset=9, refill=True)),
)


@pytest.mark.parametrize(
    ("snapshot", "listed", "expected"),
    [
        (SOUND, [*LISTED, identity("evt_9")], {"missed_event": 1}),
        (SOUND, LISTED[1:], {"event_not_listed": 1}),
        (
            replace(SOUND, markers=SOUND.markers[:3] + SOUND.markers[4:]),
            LISTED,
            {"record_without_state": 1, "missed_event": 1},
        ),
        (replace(SOUND, events=SOUND.events[1:]), LISTED, {"marker_without_record": 1}),
        (LOST_TAIL, LISTED, {"topic_lost_records": 1}),
        (NOT_READ, LISTED, {}),
        (replace(SOUND, published=SOUND.published[:2]), LISTED, {"outcome_not_published": 1}),
        (replace(SOUND, published=SOUND.published[::2]), LISTED, {"outcome_not_published": 1, "lane_gap": 1}),
        (REFILLED, LISTED, {}),
        (replace(SOUND, rows=SOUND.rows[:2]), LISTED, {"outcome_without_row": 1}),
        (
            replace(SOUND, published=(*SOUND.published, replace(SOUND.published[2], offset=9))),
            LISTED,
            {"outcome_doubled": 1, "lane_gap": 1},
        ),
        (replace(SOUND, lanes=(Lane(0, 3, 2, "ok"),), published=SOUND.published[:2]), LISTED, {}),
    ],
)
def test_each_difference_is_counted(snapshot: Snapshot, listed: list[Identity], expected: dict[str, int]) -> None:
    assert expected == differences(snapshot, listed)


def test_what_has_a_reason_is_no_difference() -> None:
    assert differences(SOUND, LISTED[1:], too_old=[*NO_ID, LISTED[0]]) == {}
    gone = replace(SOUND, events=tuple(one for one in SOUND.events if one != PAID_1))
    assert differences(gone, elsewhere=[LISTED[0]]) == {}


PROOF: dict[str, Any] = {
    "events": 6,
    "unexplained": 1,
    "counts": {"records": {"processed": 5}, "outcomes": {"written": 3, "published": 3}},
    "differences": [{"kind": "missed_event"}],
}
SO_IT_IS = Truth(6, Counter({"processed": 5}), 3, 3, {"missed_event": 1})


def test_a_proof_that_says_the_truth() -> None:
    assert compare(PROOF, SO_IT_IS) == []


@pytest.mark.parametrize(
    ("truth", "told"),
    [
        (replace(SO_IT_IS, events=7), "events"),
        (replace(SO_IT_IS, records={"processed": 4, "duplicate": 1}), "records"),
        (replace(SO_IT_IS, written=4), "outcomes written"),
        (replace(SO_IT_IS, published=2), "outcomes published"),
        (replace(SO_IT_IS, differences={"lane_gap": 1}), "differences"),
        (replace(SO_IT_IS, differences={}), "unexplained"),
    ],
)
def test_a_proof_that_says_anything_else(truth: Truth, told: str) -> None:
    assert any(line.startswith(f"{told}:") for line in compare(PROOF, truth))


def test_of_many_differences_only_the_number_is_compared() -> None:
    many = {**PROOF, "unexplained": 5_000, "differences": [{"kind": "missed_event"}] * 1_000}
    assert compare(many, replace(SO_IT_IS, differences={"missed_event": 5_000})) == []
