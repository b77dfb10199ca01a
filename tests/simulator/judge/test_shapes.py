"""stripe-mock, which holds Stripe's own description of its interface, judges our requests and the simulator's objects."""

from __future__ import annotations

from typing import Any

import pytest
import requests
import stripe

from onceflow_simulator import Simulator
from tests.simulator.asking import pay, refund
from tests.simulator.conftest import Connect
from tests.simulator.judge.calls import CALLS, ApiCall

pytestmark = pytest.mark.judge

TIMEOUT_SECONDS = 30.0
VALUE_OF_A_PLACE = "x_123"


def ask(url: str, call: ApiCall, *, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make the call through Stripe's library, so that its encoding is judged too."""
    monkeypatch.setattr(stripe, "enable_telemetry", False)
    http = stripe.RequestsClient(timeout=TIMEOUT_SECONDS)
    client = stripe.StripeClient("sk_test_123456789", base_addresses={"api": url}, http_client=http)
    try:
        return client.raw_request(call.method, call.path.format(VALUE_OF_A_PLACE), **call.params).data
    finally:
        http.close()  # type: ignore[no-untyped-call]  # as the library ships it


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_a_call_is_one_that_stripe_knows(mock_url: str, call: ApiCall, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(mock_url, call, monkeypatch=monkeypatch)["object"]


@pytest.mark.parametrize(
    "call",
    [
        ApiCall("post", "/v1/refunds", {"payment_intent": "pi_1", "colour": "red"}),
        ApiCall("post", "/v1/payment_intents", {"currency": "usd"}),
        ApiCall("post", "/v1/payment_intents", {"amount": "much", "currency": "usd"}),
    ],
    ids=str,
)
def test_the_judge_can_say_no(mock_url: str, call: ApiCall, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(stripe.InvalidRequestError):
        ask(mock_url, call, monkeypatch=monkeypatch)


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_the_simulator_takes_the_same_calls(
    simulator: Simulator, call: ApiCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be no such object; there must be such an address with such parameters."""
    refused = None
    try:
        ask(simulator.url, call, monkeypatch=monkeypatch)
    except stripe.InvalidRequestError as error:
        refused = error
    assert refused is None or refused.code == "resource_missing", refused


@pytest.fixture
def objects(simulator: Simulator, connect: Connect) -> dict[str, Any]:
    """One object of each kind that the product reads."""
    client = connect()
    intent = pay(client)
    pay(client, payment_method="pm_card_createDispute")
    simulator.advance(1)
    client.v1.webhook_endpoints.create({"url": "http://127.0.0.1:9", "enabled_events": ["charge.captured"]})
    return {
        "payment_intents": intent,
        "refunds": refund(client, intent.id, amount=500),
        "charges": client.v1.charges.retrieve(intent.latest_charge),
        "customers": client.v1.customers.create({"email": "buyer@example.com"}),
        "events": client.v1.events.list({"limit": 1}).data[0],
        "webhook_endpoints": client.v1.webhook_endpoints.list({}).data[0],
        "disputes": client.v1.disputes.list({}).data[0],
    }


@pytest.mark.parametrize(
    "kind", ["payment_intents", "refunds", "charges", "customers", "events", "webhook_endpoints", "disputes"]
)
def test_an_object_has_no_field_that_stripe_does_not_have(mock_url: str, objects: dict[str, Any], kind: str) -> None:
    answer = requests.get(
        f"{mock_url}/v1/{kind}/x_123", headers={"Authorization": "Bearer sk_test_123456789"}, timeout=TIMEOUT_SECONDS
    )
    real, ours = answer.json(), objects[kind].to_dict()
    assert set(ours) - set(real) == set()
    for name, value in ours.items():
        if real[name] is not None and value is not None:
            assert type(value) is type(real[name]), name
