"""Events that a test tells: the list shows them, and nobody delivers them."""

from __future__ import annotations

from typing import Any

import pytest
import stripe

from onceflow_simulator import Simulator
from onceflow_simulator.client import SimulatorRefused


def told(number: int, **fields: Any) -> dict[str, Any]:
    subject = {"id": f"cus_{number}", "object": "customer"}
    return {
        "id": f"evt_t{number}",
        "type": "customer.created",
        "created": 1_700_000_000 + number,
        "data": {"object": subject},
        **fields,
    }


@pytest.fixture
def simulator() -> Any:
    with Simulator(start=1_700_000_100) as running:
        yield running


def test_they_are_listed_newest_first_and_found_by_id(simulator: Simulator) -> None:
    assert simulator.tell_events([told(number) for number in range(150)]) == 150
    client = stripe.StripeClient(simulator.api_key, base_addresses={"api": simulator.url})
    listed = [event.id for event in client.v1.events.list({"limit": 100}).auto_paging_iter()]
    assert listed == [f"evt_t{number}" for number in reversed(range(150))]
    assert client.v1.events.retrieve("evt_t7").created == 1_700_000_007
    assert [one.id for one in client.v1.events.list({"created": {"gte": 1_700_000_149}}).data] == ["evt_t149"]
    assert simulator.deliveries() == []


def test_what_orjson_cannot_write_is_shown_as_it_was_told(simulator: Simulator) -> None:
    subject = {"id": "cus_1", "object": "customer", "name": "half \ud83d of it", "number": 10**30}
    simulator.tell_events([told(1, data={"object": subject})])
    client = stripe.StripeClient(simulator.api_key, base_addresses={"api": simulator.url})
    [shown] = client.v1.events.list({"limit": 10}).to_dict(for_json=True)["data"]
    assert shown["data"]["object"] == subject


@pytest.mark.parametrize(
    "events",
    [
        [told(1), told(1)],
        [told(2), told(1)],
        [{**told(1), "id": ""}],
        [{**told(1), "created": "now"}],
        [{**told(1), "data": {}}],
        [{**told(1), "data": 5}],
        [],
    ],
)
def test_what_no_event_can_be_is_refused_as_a_whole(simulator: Simulator, events: list[dict[str, Any]]) -> None:
    with pytest.raises(SimulatorRefused):
        simulator.tell_events(events)
    client = stripe.StripeClient(simulator.api_key, base_addresses={"api": simulator.url})
    assert client.v1.events.list({"limit": 10}).data == []


def test_they_are_delivered_where_that_is_asked_for(simulator: Simulator) -> None:
    endpoint = simulator.add_webhook("http://127.0.0.1:9/", secrets=["whsec_x"], drop=1.0)
    simulator.tell_events([told(1)])
    assert simulator.dropped(endpoint) == []
    simulator.tell_events([told(2), told(3)], deliver=True)
    assert simulator.dropped(endpoint) == ["evt_t2", "evt_t3"]
