"""The plan holds what the demo promises to send, in an order that the seed decides."""

from __future__ import annotations

from collections import Counter

from onceflow.demo.traffic import plan_traffic

NOW = 1_767_225_600


def test_numbers_of_the_promise() -> None:
    plan = plan_traffic(seed=4, now=NOW)
    assert Counter(request.kind for request in plan.requests) == {
        "event": 1_670,
        "repeat": 300,
        "forged": 20,
        "odd": 10,
    }
    assert len({request.digest for request in plan.requests}) == 1_700


def test_repeats_repeat_and_forgeries_do_not() -> None:
    plan = plan_traffic(seed=4, now=NOW)
    real = {request.digest for request in plan.requests if request.kind in {"event", "odd"}}
    assert all(request.digest in real for request in plan.requests if request.kind == "repeat")
    assert all(request.digest not in real for request in plan.requests if request.kind == "forged")


def test_order_is_shuffled_by_the_seed() -> None:
    first, again, other = (plan_traffic(seed=seed, now=NOW, count=400) for seed in (1, 1, 2))
    assert first.requests == again.requests
    assert first.requests != other.requests
    assert [request.body for request in first.requests if request.kind == "event"] != [e.body for e in first.events]


def test_ten_oddities_of_which_two_are_processed() -> None:
    plan = plan_traffic(seed=4, now=NOW)
    assert [item.code for item in plan.odd] == [
        None,
        None,
        "duplicate_key",
        "not_an_event",
        "not_json",
        "too_deep",
        "not_utf8",
        "bad_event_id",
        "bad_number",
        "other_mode",
    ]
    assert b"\\u0000" in plan.odd[0].body
    assert b"\\ud83d" in plan.odd[1].body
