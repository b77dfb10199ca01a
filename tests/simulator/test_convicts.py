"""A careless client is convicted by the ledger, each way of being careless by itself; a careful one is not.

Without this, the simulator could not tell right from wrong, and every green test over it would mean nothing.
"""

from __future__ import annotations

from typing import Any

import pytest
import stripe

from onceflow_simulator import Simulator
from tests.simulator.asking import pay, refund
from tests.simulator.conftest import Connect

DAY_SECONDS = 24 * 3600


def careless_pay(client: stripe.StripeClient, *, tries: int = 3) -> Any:
    """What is written first: on any trouble, ask again; the library makes a new key each time."""
    for _ in range(tries):
        try:
            return pay(client)
        except (stripe.APIConnectionError, stripe.APIError):
            continue
    return None


def test_a_new_key_per_retry_charges_twice(simulator: Simulator, client: stripe.StripeClient) -> None:
    simulator.faults.lose_answer()
    assert careless_pay(client).status == "succeeded"
    assert simulator.ledger().count("charge", "op_1") == 2
    assert simulator.ledger().doubled("charge") == ["op_1"]


def test_the_same_key_after_its_end_charges_twice(simulator: Simulator, client: stripe.StripeClient) -> None:
    simulator.faults.lose_answer()
    with pytest.raises(stripe.APIConnectionError):
        pay(client, key="op_1")
    simulator.advance(DAY_SECONDS)
    assert pay(client, key="op_1").status == "succeeded"
    assert simulator.ledger().count("charge", "op_1") == 2


def test_failed_on_timeout_and_then_charged_again_charges_twice(
    simulator: Simulator, client: stripe.StripeClient, connect: Connect
) -> None:
    simulator.faults.land_late(seconds=3)
    hasty = connect(timeout_seconds=0.2)
    state = "new"
    try:
        pay(hasty, key="first")
    except stripe.APIConnectionError:
        state = "failed"
    # It even looks whether something is there, and finds nothing, because nothing is there yet.
    assert client.v1.payment_intents.list({}).data == []
    assert state == "failed"
    pay(client, key="second")
    simulator.advance(3)
    assert simulator.ledger().count("charge", "op_1") == 2


def test_a_partial_refund_with_a_new_key_is_given_twice(simulator: Simulator, client: stripe.StripeClient) -> None:
    intent = pay(client).id
    simulator.faults.lose_answer(match={"path": "/v1/refunds"})
    with pytest.raises(stripe.APIConnectionError):
        refund(client, intent, amount=500, key="a")
    refund(client, intent, amount=500, key="b")
    assert (simulator.ledger().count("refund", "op_r"), simulator.ledger().amount("refund", "op_r")) == (2, 1000)


def test_the_librarys_own_retries_keep_the_key_and_are_no_danger(
    simulator: Simulator, client: stripe.StripeClient
) -> None:
    simulator.faults.lose_answer(times=2)
    params: Any = {"amount": 2000, "currency": "usd", "confirm": True, "payment_method": "pm_card_visa"}
    client.v1.payment_intents.create(params, {"max_network_retries": 2})
    assert simulator.ledger().count("charge") == 1


@pytest.mark.parametrize("how", ["reset", "truncated", "garbage", "hang"])
def test_a_careful_client_charges_once(
    simulator: Simulator, client: stripe.StripeClient, connect: Connect, how: str
) -> None:
    simulator.faults.lose_answer(how, hang_ms=5000)
    with pytest.raises((stripe.APIConnectionError, stripe.APIError, UnicodeDecodeError)):
        pay(connect(timeout_seconds=0.3), key="op_1")
    again = pay(client, key="op_1")
    assert again.last_response.headers["Idempotent-Replayed"] == "true"
    assert simulator.ledger().count("charge", "op_1") == 1
    assert [entry["object"] for entry in simulator.journal()] == [again.id]


def test_two_steps_are_a_fence_that_outlives_the_keys(simulator: Simulator, client: stripe.StripeClient) -> None:
    """A confirm whose key has expired finds an intent that is confirmed already."""
    intent = client.v1.payment_intents.create(
        {"amount": 2000, "currency": "usd", "metadata": {"onceflow_operation": "op_1"}}, {"idempotency_key": "c"}
    ).id
    simulator.faults.lose_answer()
    with pytest.raises(stripe.APIConnectionError):
        client.v1.payment_intents.confirm(intent, {"payment_method": "pm_card_visa"}, {"idempotency_key": "f"})
    simulator.advance(2 * DAY_SECONDS)
    with pytest.raises(stripe.InvalidRequestError) as refused:
        client.v1.payment_intents.confirm(intent, {"payment_method": "pm_card_visa"}, {"idempotency_key": "f"})
    assert refused.value.code == "payment_intent_unexpected_state"
    assert simulator.ledger().count("charge", "op_1") == 1
