"""Which hours are listed again, and what a former proof proves."""

from __future__ import annotations

from typing import Any

import pytest

from onceflow_reconciler.slices import Slice
from onceflow_reconciler.verify.hours import (
    SPAN_EVENTS_MAX,
    HourSum,
    due_hour,
    extended,
    hour_sum,
    is_proof,
    proof_faults,
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
    plan = to_list(Slice(since, until), now=NOW, read=read, ours=ours, first_hour=min(ours, default=None))
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


def test_what_stripe_does_not_list_any_more_is_said() -> None:
    old = NOW - 40 * 24 * HOUR
    plan = to_list(Slice(0, NOW), now=NOW, read={}, ours={old: ONE}, first_hour=old)
    assert plan.unreachable
    assert plan.spans[0].since == NOW - 30 * 24 * HOUR + HOUR
    assert not to_list(Slice(0, NOW), now=NOW, read={}, ours={START: ONE}, first_hour=START).unreachable


def proof(**changes: Any) -> dict[str, Any]:
    hour = {"events": 3, "id_hash": 99, "settled": True}
    made = {
        "version": 1, "made_at": "2026-01-01T00:00:00.000000Z", "deployment": "shop", "mode": "test",
        "hours": {"acct_1": {str(START): hour}}, "lanes": {"0": 5}, "topics": {"events": {"id": "A"}},
    }  # fmt: skip
    return {**made, **changes}


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({}, []),
        ({"lanes": {"0": 6}}, []),
        ({"lanes": {"0": 4}}, ["proof_differs"]),
        ({"topics": {"events": {"id": "B"}}}, ["proof_differs"]),
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
    assert is_proof(whole)
    assert not is_proof({"version": 1})
    assert not is_proof([])
