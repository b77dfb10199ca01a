"""The judge is tried: one fault is planted in a sound snapshot, and exactly its invariant is found broken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.checker.judge import Counts, judge, judge_pair
from tests.checker.small_world import (
    ACCOUNT,
    FAILED,
    IGNORED,
    ODD,
    PAID_1,
    PAID_1_AGAIN,
    PAID_1_TWIN,
    REFUNDED,
    ROWS,
    SOUND,
    digest,
    entry,
    identity,
    marker,
    outcome,
)
from tests.checker.snapshot import Delivery, Fact, Foreign, Hit, Lane, Progress, QuarantineRow, Snapshot, Wanted

TOPIC = SOUND.published


def test_sound_snapshot_has_no_violation() -> None:
    assert judge(SOUND).violations == ()


def test_counts_are_of_distinct_events() -> None:
    expected = Counts(
        sent=10,
        answered=7,
        records=7,
        distinct=6,
        processed=4,
        ignored=1,
        quarantined=1,
        parked=0,
        duplicates=1,
        written=3,
        published=3,
    )
    assert expected == judge(SOUND).counts


def test_an_event_that_is_parked_and_not_yet_due_is_no_violation() -> None:
    markers = (*SOUND.markers[:3], marker(IGNORED, "parked"), SOUND.markers[4])
    verdict = judge(replace(SOUND, markers=markers, waiting=frozenset({identity("evt_4")})))
    assert verdict.violations == ()
    assert verdict.counts.parked == 1


def swapped(first: int, second: int) -> tuple[Any, ...]:
    """The topic with two outcomes at each other's offsets."""
    changed = list(TOPIC)
    changed[first] = replace(TOPIC[second], offset=TOPIC[first].offset)
    changed[second] = replace(TOPIC[first], offset=TOPIC[second].offset)
    return tuple(changed)


PLANTED: dict[str, tuple[str, dict[str, Any]]] = {
    "an event was answered 200 and is not in the topic": (
        "I1",
        {"deliveries": (*SOUND.deliveries, Delivery(digest("evt_lost"), 200))},
    ),
    "an event is in the topic and has no marker": (
        "I1",
        {"markers": SOUND.markers[:3] + SOUND.markers[4:]},
    ),
    "progress passed a record without a state": (
        "I5",
        {"markers": SOUND.markers[:3] + SOUND.markers[4:]},
    ),
    "a record was passed and a later one marked": (
        "I5",
        {"markers": (marker(PAID_1_AGAIN, "processed"), *SOUND.markers[1:])},
    ),
    "progress has not reached the last record": (
        "I1",
        {"progress": (SOUND.progress[0], Progress(1, 2, 1, None, 0, 3))},
    ),
    "progress is beyond the log": ("I5", {"progress": (SOUND.progress[0], Progress(1, 9, 1, None, 0, 3))}),
    "a partition is stopped": ("I8", {"progress": (SOUND.progress[0], Progress(1, 3, 1, "tail_lost", 0, 3))}),
    "an event is parked for ever": (
        "I1",
        {"markers": (*SOUND.markers[:3], marker(IGNORED, "parked"), SOUND.markers[4])},
    ),
    "an event is processed and still waits": ("I3", {"waiting": frozenset({PAID_1.identity})}),
    "a marker names a place without a record": (
        "I3",
        {
            "markers": (
                *SOUND.markers,
                replace(marker(IGNORED, "ignored"), identity=identity("evt_9"), position=(1, 77)),
            )
        },
    ),
    "a marker names another body": (
        "I3",
        {"markers": (replace(SOUND.markers[0], body_sha256=digest("other")), *SOUND.markers[1:])},
    ),
    "a marker is not what its body says": (
        "I9",
        {"events": (replace(PAID_1, body_identity=(None, "test", "evt_other")), *SOUND.events[1:])},
    ),
    "a forged body is in the topic": (
        "I9",
        {"events": (*SOUND.events, replace(ODD, offset=3, body_sha256=digest("forged")))},
    ),
    "a wrong signature was answered 200": (
        "I9",
        {"deliveries": (*SOUND.deliveries[:-1], Delivery(digest("forged"), 200, signed=False))},
    ),
    "a right signature was refused": ("I1", {"deliveries": (*SOUND.deliveries, Delivery(digest("evt_1"), 413))}),
    "a canary is in a log": ("I9", {"hits": (Hit("bridge.log", "canary"),)}),
    "a good event was quarantined": (
        "I1",
        {"quarantine": (*SOUND.quarantine, QuarantineRow((0, 3), "handler_failed", None, digest("evt_3"), 10))},
    ),
    "an odd body was quarantined with another code": (
        "I1",
        {"quarantine": (replace(SOUND.quarantine[0], code="handler_failed"),)},
    ),
    "a quarantine row lost its bytes": ("I1", {"quarantine": (replace(SOUND.quarantine[0], value_sha256=None),)}),
    "a quarantine row names no record": (
        "I3",
        {"quarantine": (*SOUND.quarantine, replace(SOUND.quarantine[0], position=(1, 50)))},
    ),
    "an odd body was not quarantined": (
        "I1",
        {"deliveries": (*SOUND.deliveries, Delivery(digest("evt_3"), 200, codes=frozenset({"too_deep"})))},
    ),
    "an untrusted record touched a marker": (
        "I9",
        {
            "markers": (*SOUND.markers[:3], marker(IGNORED, "quarantined"), SOUND.markers[4]),
            "quarantine": (*SOUND.quarantine, QuarantineRow((1, 0), "unauthenticated", None, digest("evt_4"), 10)),
            "planted": {(1, 0): frozenset({"unauthenticated"})},
        },
    ),
    "an event is processed without its outcome": (
        "I3",
        {"rows": ROWS[:2], "published": TOPIC[:2], "lanes": (Lane(0, 2, 2, "ok"),)},
    ),
    "an ignored type was processed": (
        "I3",
        {"markers": (*SOUND.markers[:3], marker(IGNORED, "processed"), SOUND.markers[4])},
    ),
    "an outcome stands without a marker": (
        "I3",
        {
            "rows": (*ROWS, outcome(4, "evt_ghost", kind="payment.failed", key="pi_1")),
            "published": (*TOPIC, outcome(4, "evt_ghost", kind="payment.failed", key="pi_1", offset=9)),
            "lanes": (Lane(0, 4, 4, "ok"),),
        },
    ),
    "the twin event had an effect too": (
        "I2",
        {
            "rows": (*ROWS, outcome(4, "evt_2", kind="payment.succeeded", key="pi_1")),
            "published": (*TOPIC, outcome(4, "evt_2", kind="payment.succeeded", key="pi_1", offset=9)),
            "lanes": (Lane(0, 4, 4, "ok"),),
        },
    ),
    "an outcome is about another object": ("I3", {"rows": (replace(ROWS[0], key="pi_2"), *ROWS[1:])}),
    "a refund came out with another amount": (
        "I3",
        {
            "events": (
                *SOUND.events[:5],
                replace(REFUNDED, wanted=Wanted("charge.refunded", "ch_1", data=(("amount_refunded", 5),))),
                ODD,
            )
        },
    ),
    "a fact names another event": ("I3", {"facts": (Fact("payment", "pi_1", f"event:{ACCOUNT}/test/evt_2"),)}),
    "a fact stands alone": ("I3", {"facts": (*SOUND.facts, Fact("payment", "pi_9", f"event:{ACCOUNT}/test/evt_9"))}),
    "a batch guard is left": ("I3", {"guard_rows": 1}),
    "the user's row is missing": ("I3", {"effects": ("evt_1", "evt_2", "evt_3")}),
    "the user's row is doubled": ("I2", {"effects": ("evt_1", "evt_2", "evt_3", "evt_5", "evt_5")}),
    "the user's row has no event": ("I3", {"effects": ("evt_1", "evt_2", "evt_3", "evt_5", "evt_4")}),
    "an outcome was dropped": ("I4", {"published": (TOPIC[0], TOPIC[2])}),
    "the last outcome was dropped": ("I4", {"published": TOPIC[:2]}),
    "an outcome was doubled": ("I4", {"published": (*TOPIC, replace(TOPIC[1], offset=50))}),
    "two outcomes were swapped": ("I4", {"published": swapped(0, 1)}),
    "an outcome has another value than its row": (
        "I4",
        {"published": (replace(TOPIC[0], value_sha256=digest("x")), *TOPIC[1:])},
    ),
    "a stranger wrote to the outcome topic": ("I4", {"foreign": (Foreign(0, 3, "no headers"),)}),
    "a sequence was left out": (
        "I4",
        {
            "rows": (*ROWS[:2], replace(ROWS[2], seq=4)),
            "published": (*TOPIC[:2], replace(TOPIC[2], seq=4)),
            "lanes": (Lane(0, 4, 4, "ok"),),
        },
    ),
    "a head counts other than its rows": ("I4", {"lanes": (Lane(0, 4, 4, "ok"),)}),
    "an outcome is not published": ("I4", {"lanes": (Lane(0, 3, 2, "ok"),)}),
    "a lane is stopped": ("I8", {"lanes": (Lane(0, 3, 3, "stopped:diverged"),)}),
    "an outcome is in another lane than its key says": (
        "I4",
        {"lanes": (*SOUND.lanes, *(Lane(number, 0, 0, "ok") for number in range(1, 7)))},
    ),
    "outcomes of a key are against the order of their events": (
        "I4",
        {"rows": (replace(ROWS[1], seq=1), replace(ROWS[0], seq=2), ROWS[2])},
    ),
    "the system did not settle": ("I8", {"not_quiet": "lane 0: 1 of 2"}),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_fault_is_convicted(fault: str) -> None:
    code, changes = PLANTED[fault]
    verdict = judge(replace(SOUND, **changes))
    assert code in verdict.codes(), f"{fault}: {verdict}"


def test_duplicate_of_another_partition_is_no_violation() -> None:
    elsewhere = entry(1, 3, "evt_1", kind="payment_intent.succeeded", wanted=PAID_1.wanted)
    changed = replace(
        SOUND,
        events=(*SOUND.events, elsewhere),
        progress=(SOUND.progress[0], Progress(1, 4, 1, None, 0, 4)),
    )
    assert judge(changed).violations == ()


def test_a_record_that_retention_took_is_not_missed() -> None:
    """One that says it is years old is alone in its segment, and goes with the broker's next look."""
    planted = QuarantineRow((1, 0), "unauthenticated", None, digest("old"), 10)
    moved = tuple(replace(one, offset=one.offset + 1) if one.partition == 1 else one for one in SOUND.events)
    changed = replace(
        SOUND,
        events=moved,
        markers=tuple(replace(one, position=shifted(one.position)) for one in SOUND.markers),
        quarantine=(*(replace(one, position=shifted(one.position)) for one in SOUND.quarantine), planted),
        progress=(SOUND.progress[0], Progress(1, 4, 1, None, 1, 4)),
    )
    assert judge(changed).violations == ()
    there = replace(changed, progress=(SOUND.progress[0], Progress(1, 4, 1, None, 0, 4)))
    assert [one.code for one in judge(there).violations] == ["I3"]


def shifted(position: tuple[int, int]) -> tuple[int, int]:
    return (1, position[1] + 1) if position[0] == 1 else position


CHANGED: dict[str, dict[str, Any]] = {
    "a marker": {"markers": (replace(SOUND.markers[0], state="ignored"), *SOUND.markers[1:])},
    "a marker is gone": {"markers": SOUND.markers[1:]},
    "an outcome row": {"rows": (replace(ROWS[0], value_sha256=digest("x")), *ROWS[1:])},
    "a record": {"published": TOPIC[1:]},
    "a fact": {"facts": ()},
    "an epoch": {"progress": (Progress(0, 4, 0, None, 0, 4), SOUND.progress[1])},
    "progress": {"progress": (Progress(0, 3, 1, None, 0, 4), SOUND.progress[1])},
}


@pytest.mark.parametrize("change", CHANGED)
def test_change_afterwards_is_convicted(change: str) -> None:
    assert {"I6"} == {violation.code for violation in judge_pair(SOUND, replace(SOUND, **CHANGED[change]))}


def test_growth_is_no_change() -> None:
    grown: Snapshot = replace(
        SOUND,
        events=(*SOUND.events, entry(1, 3, "evt_6", kind="payout.paid", wanted=None)),
        progress=(SOUND.progress[0], Progress(1, 4, 2, None, 0, 4)),
    )
    assert judge_pair(SOUND, grown) == []


def test_only_the_state_of_what_was_parked_changes() -> None:
    parked = replace(SOUND.markers[0], state="parked")
    before = replace(SOUND, markers=(parked, *SOUND.markers[1:]))
    assert judge_pair(before, SOUND) == []
    for changed in ({"type": "payout.failed"}, {"position": (1, 77)}, {"body_sha256": digest("x")}):
        later = replace(SOUND, markers=(replace(SOUND.markers[0], **changed), *SOUND.markers[1:]))
        assert [violation.code for violation in judge_pair(before, later)] == ["I6"]
    assert [violation.code for violation in judge_pair(before, replace(SOUND, markers=SOUND.markers[1:]))] == ["I6"]


def test_verdict_names_what_is_broken() -> None:
    text = str(judge(replace(SOUND, published=(TOPIC[0], TOPIC[2]))))
    assert "I4: the outcome (0, 2)" in text
    assert "nothing is broken" in str(judge(SOUND))


def test_twin_may_be_first() -> None:
    """Which of two events of one fact has the outcome is decided by their order, not by the checker."""
    row = outcome(1, "evt_2", kind="payment.succeeded", key="pi_1")
    changed = replace(
        SOUND,
        rows=(row, *ROWS[1:]),
        published=(replace(row, offset=0), *TOPIC[1:]),
        facts=(Fact("payment", "pi_1", f"event:{ACCOUNT}/test/evt_2"),),
    )
    assert judge(changed).violations == ()
    assert (FAILED.position, PAID_1_TWIN.position) == ((0, 3), (0, 2))
