"""Generated events look like Stripe's, and a seed repeats them to the byte."""

from __future__ import annotations

import json
import statistics

import pytest

from onceflow.demo.stripe_events import stripe_events

NOW = 1_767_225_600


@pytest.mark.parametrize("seed", range(3))
def test_sizes_and_types(seed: int) -> None:
    events = stripe_events(seed=seed, count=1_670, now=NOW)
    sizes = sorted(len(event.body) for event in events)
    assert sizes[0] >= 500
    assert sizes[-1] <= 60_000
    assert 2_500 <= statistics.median(sizes) <= 3_500
    assert sizes[-1] > 20_000
    assert len({event.type for event in events}) >= 15


def test_bodies_say_what_the_events_say() -> None:
    for event in stripe_events(seed=5, count=300, now=NOW):
        body = json.loads(event.body)
        assert (body["id"], body["type"], body["object"]) == (event.id, event.type, "event")
        assert body["data"]["object"].get("id", "") == event.object_id
        assert NOW - 3_600 <= body["created"] <= NOW
        assert body["livemode"] is False


def test_same_seed_same_bytes() -> None:
    first, second = (stripe_events(seed=9, count=200, now=NOW) for _ in range(2))
    assert first == second
    assert first != stripe_events(seed=10, count=200, now=NOW)


def test_ids_are_unique_and_some_facts_are_told_twice() -> None:
    events = stripe_events(seed=1, count=3_000, now=NOW)
    assert len({event.id for event in events}) == 3_000
    payments = [event.object_id for event in events if event.type == "payment_intent.succeeded"]
    assert len(set(payments)) < len(payments)


def test_bodies_have_the_form_of_stripe() -> None:
    """Empty objects and lists stand over several lines and ``&`` is escaped, as in bodies that Stripe really sent."""
    bodies = [event.body for event in stripe_events(seed=2, count=400, now=NOW)]
    pretty = [body for body in bodies if body.startswith(b"{\n  ")]
    assert len(pretty) > 300
    assert not any(b"{}" in body or b"[]" in body or b"&" in body for body in pretty)
    assert any(b'"amount_details": {\n        "tip": {\n        }' in body for body in pretty)
    assert any(b'"balance_transactions": [\n\n      ]' in body for body in pretty)
    assert any(b"\\u0026" in body for body in pretty)
