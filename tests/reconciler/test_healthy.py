"""A healthy system, however late and out of order its events come, shows no finding and is proved."""

from __future__ import annotations

import random
from collections import Counter

import stripe

from tests.reconciler.conftest import PLATFORM, ReconcilerRoad
from tests.reconciler.test_missed_events import seen

EVENTS = 1_000
TWICE = 50
GRACE_SECONDS = 120


def test_a_healthy_system_shows_nothing(road: ReconcilerRoad) -> None:
    """Some come late, all of them in any order, and some twice; the list shows them late as well."""
    road._environment["ONCEFLOW_RECONCILER_GRACE_SECONDS"] = str(GRACE_SECONDS)
    road.stripe.add_webhook("https://shop.example.com/webhooks/stripe", secrets=["whsec_x"])
    now = int(road.stripe.stop_clock())
    road.stripe.tell_events(
        [
            {
                "id": f"evt_{number:05}",
                "type": "customer.updated",
                "livemode": False,
                "created": now - 60 + number * 60 // EVENTS,
                "data": {"object": {"id": f"cus_{number % 97}", "object": "customer"}},
            }
            for number in range(EVENTS)
        ]
    )
    client = stripe.StripeClient(road.stripe.api_key, base_addresses={"api": road.stripe.url})
    told = [one.to_dict(for_json=True) for one in client.v1.events.list({"limit": 100}).auto_paging_iter()]
    order = random.Random(7)
    late = [*told, *order.sample(told, TWICE)]
    order.shuffle(late)
    road.deliver_all(late[: EVENTS // 2])
    assert road.once()[PLATFORM]["missed"] == 0
    with road.processor():
        road.deliver_all(late[EVENTS // 2 :])
        # All are old enough now, and few of them are done.
        road.stripe.advance(GRACE_SECONDS + 5)
        assert road.once()[PLATFORM]["missed"] == 0
    road.settle(EVENTS)
    assert road.once()[PLATFORM]["missed"] == 0
    assert road.rows("SELECT kind, subject, facts FROM onceflow.finding WHERE kind <> 'clock_skew'") == []
    assert seen(road) == Counter(one["id"] for one in told)
    answer = road.answer()
    assert (answer.events, answer.unexplained) == (EVENTS, ())
    assert answer.counts["records"] == {"processed": EVENTS, "duplicate": TWICE}
