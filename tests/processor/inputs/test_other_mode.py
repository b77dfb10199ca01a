"""Test events at a live deployment: refused by their mode, which is part of an event's identity."""

from __future__ import annotations

from tests.processor.inputs.test_roads import Bus, invoice_paid, seen
from tests.processor.processor_process import MakeRoad, wait_until


def test_an_event_of_the_other_mode_has_no_effect_and_takes_nothing_from_the_right_one(make_road: MakeRoad) -> None:
    """R15: a live processor meets test events, of the bridge and of a bus; then live ones of the same ids."""
    road = make_road(partitions=1)
    bus = Bus(road, ("stripe-json", "stripe-signature"))

    def feed(*, livemode: bool) -> None:
        road.publish(["evt_a"], livemode=livemode)
        bus.publish(invoice_paid("evt_b", livemode=livemode))
        bus.flush()

    feed(livemode=False)
    with road.processor(**bus.settings, ONCEFLOW_STRIPE_MODE="live"):
        wait_until(lambda: bus.passed() == 2, "both are passed")
        assert [bus.quarantined(topic) for topic in (road.events, *bus.topics)] == [["other_mode"], ["other_mode"]]
        assert (seen(road), road.outcome_ids()) == ([], [])
        feed(livemode=True)
        wait_until(lambda: bus.passed() == 4, "all are passed")
    rows = road.rows("SELECT mode, event_id, state FROM onceflow.inbox ORDER BY 1, 2")
    assert [tuple(row.values()) for row in rows] == [
        ("live", "evt_a", "processed"),
        ("live", "evt_b", "processed"),
        ("test", "evt_a", "quarantined"),
        ("test", "evt_b", "quarantined"),
    ]
    assert (seen(road), len(road.outcome_ids())) == (["evt_a", "evt_b"], 2)
