"""Which hours are listed again, and what a former proof proves."""

from __future__ import annotations

from typing import Any

import pytest

from onceflow_reconciler.slices import Slice
from onceflow_reconciler.verify.hours import (
    NOTHING,
    SPAN_EVENTS_MAX,
    HourSum,
    KnownHours,
    ToList,
    due_hour,
    extended,
    hour_sum,
    is_proof,
    listed_before,
    proof_faults,
    proof_hours,
    to_list,
    whole_hour,
)

HOUR = 3600
NOW = 1_800_001_000
START = NOW - NOW % HOUR - 10 * HOUR
ONE = HourSum(3, 99)
SHA_OF_EVT_1 = "7d4e5a76eae6d8c1"


def spans(
    read: dict[int, HourSum], ours: dict[int, HourSum], *, since: int = START, until: int = NOW
) -> list[tuple[int, int]]:
    plan = to_list(Slice(since, until), now=NOW, hours=KnownHours(ours=ours, read=read))
    return [(span.since, span.until) for span in plan.spans]


def test_the_order_of_ids_does_not_matter_and_each_id_does() -> None:
    assert hour_sum(["evt_1", "evt_2"]) == hour_sum(["evt_2", "evt_1"])
    assert hour_sum(["evt_1"]) != hour_sum(["evt_2"])
    assert hour_sum([]) == HourSum(0, 0)
    # The first 8 bytes of the SHA-256 of "evt_1", as a signed number, by hand.
    assert hour_sum(["evt_1"]).id_hash == int.from_bytes(bytes.fromhex(SHA_OF_EVT_1), "big", signed=True)


def test_only_hours_that_differ_are_listed_again() -> None:
    hours = [START + number * HOUR for number in range(10)]
    all_read = dict.fromkeys(hours, ONE)
    last = (START + 10 * HOUR, NOW)
    assert spans(all_read, all_read) == [last]
    other = {**all_read, hours[4]: HourSum(3, 98)}
    assert spans(other, all_read) == [(hours[4], hours[5]), last]
    without = {hour: one for hour, one in all_read.items() if hour not in hours[4:6]}
    assert spans(without, all_read) == [(hours[4], hours[6]), last]
    # Read, and nothing was there: an empty hour of the ledger agrees.
    assert spans(dict.fromkeys(hours, HourSum(0, 0)), {}) == [last]


@pytest.mark.parametrize(
    ("last", "due"),
    [
        (START + 8 * HOUR, START + 9 * HOUR),
        (START + 9 * HOUR, None),
        (None, START + 8 * HOUR),
        (START - 5000 * HOUR, NOW - NOW % HOUR - 719 * HOUR + HOUR),
    ],
)
def test_the_next_whole_hour_is_due_when_it_is_old_enough(last: int | None, due: int | None) -> None:
    found = due_hour(last, now=NOW, first_seconds=3 * HOUR, wait_seconds=600)
    assert found == (None if due is None else Slice(due, due + HOUR))


def test_a_part_of_an_hour_is_always_listed() -> None:
    assert spans({START: ONE}, {START: ONE}, since=START + 1, until=START + HOUR) == [(START + 1, START + HOUR)]
    assert whole_hour(Slice(START, START + HOUR))
    assert not whole_hour(Slice(START, START + HOUR - 1))
    assert not whole_hour(Slice(START + 1, START + HOUR + 1))


def test_hours_with_many_events_are_listed_by_themselves() -> None:
    many = HourSum(SPAN_EVENTS_MAX, 1)
    found = spans({}, {START: many, START + HOUR: many}, until=START + 3 * HOUR)
    assert found == [(START, START + HOUR), (START + HOUR, START + 3 * HOUR)]


DAY = 24 * HOUR
REACH = NOW - 30 * DAY + HOUR
OLD = NOW - NOW % HOUR - 40 * DAY
BEFORE = range(OLD, REACH, HOUR)
"""Whole hours that Stripe does not list any more, and the one of which it lists the end."""


def beyond(**given: Any) -> ToList:
    hours: dict[str, Any] = {"ours": {OLD: ONE}, "first": OLD, **given}
    return to_list(Slice(0, NOW), now=NOW, hours=KnownHours(**hours))


def test_hours_that_stripe_does_not_list_any_more_are_held_against_what_it_listed() -> None:
    read = {**dict.fromkeys(BEFORE, NOTHING), OLD: ONE}
    plan = beyond(read=read)
    assert (plan.spans[0].since, plan.differing, plan.unproved) == (BEFORE[-1] + HOUR, (), ())
    assert plan.proved == set(BEFORE)
    # A marker is gone, one is another, one is too many.
    for lost in ({}, {OLD: HourSum(3, 98)}, {OLD: ONE, OLD + HOUR: HourSum(1, 5)}):
        assert len(beyond(read=read, ours=lost).differing) == 1
    # Before the first hour of ours, or of those whose markers are all there, nothing is asked for.
    assert beyond(read=read, ours={}, first=OLD + HOUR).differing == ()
    assert beyond(read=read, ours={}, first=None).spans[0].since == REACH


def test_hours_that_nobody_kept_are_unproved_when_stripe_does_not_list_them_any_more() -> None:
    read = {**dict.fromkeys(BEFORE, NOTHING), OLD: ONE}
    gap = {hour: one for hour, one in read.items() if hour not in (OLD, OLD + HOUR, OLD + 5 * HOUR)}
    plan = beyond(read=gap)
    assert plan.unproved == (Slice(OLD, OLD + 2 * HOUR), Slice(OLD + 5 * HOUR, OLD + 6 * HOUR))
    # An earlier proof knows some of them, and a finding names others.
    assert beyond(read=gap, former={OLD: ONE}).unproved == (Slice(OLD + HOUR, OLD + 2 * HOUR), plan.unproved[1])
    assert beyond(read=gap, former={OLD: HourSum(3, 98)}).unproved == plan.unproved
    assert beyond(read=gap, told=[Slice(OLD + HOUR + 5, OLD + 6 * HOUR)]).unproved == (Slice(OLD, OLD + HOUR),)
    # Only a part of an hour is asked for: it can be held against nothing.
    asked = to_list(Slice(OLD + 60, NOW), now=NOW, hours=KnownHours(ours={OLD: ONE}, read=read, first=OLD))
    assert asked.unproved == (Slice(OLD + 60, OLD + HOUR),)


def test_what_is_kept_for_a_person_need_not_be_listed() -> None:
    forged = HourSum(1, 7)
    known = KnownHours(ours={START: ONE.plus(forged)}, kept_out={START: forged}, read={START: ONE})
    assert known.is_proved(START)
    assert not KnownHours(ours={START: ONE.plus(forged)}, read={START: ONE}).is_proved(START)
    assert not KnownHours(ours={START: ONE}, kept_out={START: forged}, read={START: HourSum(2, 1)}).is_proved(START)


def topic(topic_id: str, end: int) -> dict[str, Any]:
    return {"id": topic_id, "partitions": {"0": {"first": 0, "end": end}}}


def proof(**changes: Any) -> dict[str, Any]:
    hour = {"events": 3, "id_hash": 99, "settled": True}
    made = {
        "version": 1, "made_at": "2026-01-01T00:00:00.000000Z", "deployment": "shop", "mode": "test",
        "hours": {"acct_1": {str(START): hour}}, "lanes": {"0": 5}, "topics": {"events": topic("A", 9)},
    }  # fmt: skip
    return {**made, **changes}


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({}, []),
        ({"lanes": {"0": 6}}, []),
        ({"lanes": {"0": 4}}, ["proof_differs"]),
        ({"topics": {"events": topic("B", 9)}}, ["proof_differs"]),
        ({"topics": {"events": topic("A", 8)}}, ["proof_differs"]),
        ({"topics": {"events": topic("A", 10)}}, []),
        ({"deployment": "other"}, ["proof_of_another"]),
        ({"hours": {}}, ["proof_differs"]),
        ({"hours": {"acct_1": {str(START): {"events": 3, "id_hash": 98, "settled": True}}}}, ["proof_differs"]),
        ({"hours": {"acct_1": {str(START): {"events": 2, "id_hash": 99, "settled": True}}}}, ["proof_differs"]),
    ],
)
def test_a_later_look_is_held_against_a_proof(changes: dict[str, Any], kinds: list[str]) -> None:
    faults = proof_faults(proof(), proof(**changes), since=0, until=NOW, retired_until=0)
    assert [kind for kind, _, _ in faults] == kinds


def test_hours_that_were_young_retired_or_outside_prove_nothing() -> None:
    now = proof(hours={})
    assert proof_faults(proof(), now, since=START + 1, until=NOW, retired_until=0) == []
    assert proof_faults(proof(), now, since=0, until=START + 1, retired_until=0) == []
    assert proof_faults(proof(), now, since=0, until=NOW, retired_until=START + 1) == []
    young = proof(hours={"acct_1": {str(START): {"events": 3, "id_hash": 99, "settled": False}}})
    assert proof_faults(young, now, since=0, until=NOW, retired_until=0) == []


def test_a_proof_is_extended_by_what_a_later_one_covers() -> None:
    later = proof(made_at="2026-01-02T00:00:00.000000Z", hours={"acct_1": {str(START + HOUR): {"events": 1}}})
    whole = extended(proof(), later)
    assert sorted(whole["hours"]["acct_1"]) == [str(START), str(START + HOUR)]
    assert (whole["made_at"], whole["extends"]) == (later["made_at"], proof()["made_at"])
    assert extended(None, later) == later
    # What was held against Stripe's list once stays so, as long as it is the same.
    listed = {"events": 3, "id_hash": 99, "settled": True, "listed": True}
    for now, kept in (({**listed, "listed": False}, True), ({**listed, "id_hash": 98, "listed": False}, False)):
        made = extended(proof(hours={"acct_1": {"0": listed}}), proof(hours={"acct_1": {"0": now}}))
        assert made["hours"]["acct_1"]["0"]["listed"] is kept
        assert listed_before(made, "acct_1") == ({0: ONE} if kept else {})
    assert listed_before(None, "acct_1") == {}


def test_a_proof_names_hours_that_were_empty_at_stripe_too() -> None:
    made = proof_hours({"acct_1": {0: ONE}}, {"acct_1": {0, HOUR}, "acct_2": {0}}, settled=HOUR)
    assert made["acct_1"]["0"] == {"events": 3, "id_hash": 99, "settled": True, "listed": True}
    assert made["acct_1"][str(HOUR)] == {"events": 0, "id_hash": 0, "settled": False, "listed": True}
    assert list(made["acct_2"]) == ["0"]
    empty = {"acct_1": {str(START): {"events": 0, "id_hash": 0, "settled": True}}}
    assert proof_faults(proof(hours=empty), proof(hours={}), since=0, until=NOW, retired_until=0) == []


def test_what_is_no_proof_is_told() -> None:
    whole = proof()
    assert is_proof(whole)
    assert not is_proof({"version": 1})
    assert not is_proof([])
