"""Refunds: their sums, their states, and that ``succeeded`` is not the end."""

from __future__ import annotations

import pytest
import stripe

from onceflow_simulator import Simulator
from tests.simulator.asking import pay, refund, types


def test_partial_sums(simulator: Simulator, client: stripe.StripeClient) -> None:
    intent = pay(client)
    first, second = refund(client, intent.id, amount=500), refund(client, intent.id, amount=700)
    assert [first.status, second.status] == ["succeeded", "succeeded"]
    charge = client.v1.charges.retrieve(intent.latest_charge)
    assert (charge.amount_refunded, charge.refunded) == (1200, False)
    assert refund(client, intent.id).amount == 800
    charge = client.v1.charges.retrieve(intent.latest_charge)
    assert (charge.amount_refunded, charge.refunded) == (2000, True)
    assert simulator.ledger().amount("refund") == 2000


def test_all_given_back_already(client: stripe.StripeClient) -> None:
    intent = pay(client).id
    refund(client, intent)
    with pytest.raises(stripe.InvalidRequestError) as refused:
        refund(client, intent, amount=1)
    assert (refused.value.http_status, refused.value.code) == (400, "charge_already_refunded")


@pytest.mark.parametrize("code", [None, "amount_too_large"])
def test_more_than_is_left(simulator: Simulator, client: stripe.StripeClient, code: str | None) -> None:
    simulator.set(refund_too_large_code=code)
    intent = pay(client).id
    refund(client, intent, amount=1500)
    with pytest.raises(stripe.InvalidRequestError) as refused:
        refund(client, intent, amount=501)
    assert (refused.value.http_status, refused.value.code, refused.value.param) == (400, code, "amount")
    assert simulator.ledger().amount("refund") == 1500


def test_by_the_charge(client: stripe.StripeClient) -> None:
    intent = pay(client)
    made = client.v1.refunds.create({"charge": intent.latest_charge, "reason": "duplicate"})
    assert (made.payment_intent, made.charge, made.reason) == (intent.id, intent.latest_charge, "duplicate")
    assert [one.id for one in client.v1.refunds.list({"payment_intent": intent.id}).data] == [made.id]
    assert client.v1.refunds.list({"charge": "ch_other"}).data == []


def test_what_was_never_charged(client: stripe.StripeClient) -> None:
    intent = client.v1.payment_intents.create({"amount": 2000, "currency": "usd"}).id
    with pytest.raises(stripe.InvalidRequestError) as refused:
        refund(client, intent)
    assert refused.value.code == "payment_intent_unexpected_state"
    authorized = pay(client, capture_method="manual").id
    with pytest.raises(stripe.InvalidRequestError) as refused:
        refund(client, authorized)
    assert refused.value.code == "charge_not_refundable"
    with pytest.raises(stripe.InvalidRequestError) as refused:
        client.v1.refunds.create({})
    assert refused.value.http_status == 400


def test_pending_then_succeeded_then_failed(simulator: Simulator, client: stripe.StripeClient) -> None:
    simulator.set(refund_pending_seconds=3600)
    intent = pay(client)
    made = refund(client, intent.id)
    assert (made.status, made.pending_reason) == ("pending", "processing")
    simulator.advance(3601)
    assert client.v1.refunds.retrieve(made.id).status == "succeeded"
    simulator.advance(20 * 24 * 3600)
    simulator.act("refund_fails", made.id)
    failed = client.v1.refunds.retrieve(made.id)
    assert (failed.status, failed.failure_reason) == ("failed", "unknown")
    assert client.v1.charges.retrieve(intent.latest_charge).amount_refunded == 0
    assert types(client)[3:] == [
        "refund.created",
        "charge.refunded",
        "refund.updated",
        "charge.refund.updated",
        "refund.failed",
        "refund.updated",
        "charge.refund.updated",
    ]
    assert (simulator.ledger().count("refund"), simulator.ledger().count("refund_failed")) == (1, 1)


@pytest.mark.parametrize(
    ("method", "first", "later"),
    [("pm_card_pendingRefund", "pending", "succeeded"), ("pm_card_refundFail", "succeeded", "failed")],
)
def test_cards_whose_refunds_go_their_own_way(
    simulator: Simulator, client: stripe.StripeClient, method: str, first: str, later: str
) -> None:
    made = refund(client, pay(client, payment_method=method).id)
    assert made.status == first
    simulator.advance(120)
    assert client.v1.refunds.retrieve(made.id).status == later


def test_metadata_is_not_inherited_and_can_be_changed(client: stripe.StripeClient) -> None:
    intent = pay(client, metadata={"order": "6735"}).id
    made = client.v1.refunds.create({"payment_intent": intent})
    assert made.metadata is not None
    assert made.metadata.to_dict() == {}
    changed = client.v1.refunds.update(made.id, {"metadata": {"order": "6735"}})
    assert changed.metadata is not None
    assert changed.metadata.to_dict() == {"order": "6735"}


def test_a_pending_one_is_canceled(simulator: Simulator, client: stripe.StripeClient) -> None:
    simulator.set(refund_pending_seconds=3600)
    intent = pay(client)
    made = refund(client, intent.id)
    assert client.v1.refunds.cancel(made.id).status == "canceled"
    simulator.advance(3601)
    assert client.v1.refunds.retrieve(made.id).status == "canceled"
    assert client.v1.charges.retrieve(intent.latest_charge).amount_refunded == 0
