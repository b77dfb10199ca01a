"""Each word makes the event that it names happen, and changes reach the object that they name."""

from __future__ import annotations

import pytest
import stripe

from onceflow_simulator import Simulator, SimulatorRefused
from onceflow_simulator.triggers import TRIGGERS, trigger


@pytest.mark.parametrize("word", TRIGGERS)
def test_the_event_of_each_word_happens(simulator: Simulator, client: stripe.StripeClient, word: str) -> None:
    made = trigger(simulator.url, word, api_key=simulator.api_key)
    assert made
    events = client.v1.events.list({"type": word})
    assert [event.type for event in events.data] == [word] * len(events.data) != []
    assert simulator.state()["bugs"] == []


def test_changes(simulator: Simulator) -> None:
    changes = ["payment_intent:amount=700", "payment_intent:metadata.deposit=a=b"]
    made = trigger(simulator.url, "charge.refunded", api_key=simulator.api_key, changes=changes)
    intent = made["payment_intent"]
    assert (intent["amount"], intent["metadata"]) == (700, {"deposit": "a=b"})
    assert simulator.ledger().amount("refund") == 700


@pytest.mark.parametrize(
    ("word", "change", "told"),
    [
        ("charge.lost", "", "no trigger 'charge.lost'; there are charge.captured"),
        ("charge.refunded", "customer:email=x", "makes no customer; it makes payment_intent, refund"),
        ("charge.refunded", "amount=5", "a change is name:field=text"),
        ("charge.refunded", "payment_intent:colour=red", "POST /v1/payment_intents: 400"),
    ],
)
def test_what_cannot_be(simulator: Simulator, word: str, change: str, told: str) -> None:
    with pytest.raises(SimulatorRefused, match=told):
        trigger(simulator.url, word, api_key=simulator.api_key, changes=[change] if change else [])
