"""The shipped example: each type gives its outcome, money stays what Stripe says, missing fields do no harm."""

from __future__ import annotations

from typing import Any

import pytest

from onceflow import StripeCall
from onceflow.examples.payments import charge_order, handlers
from onceflow.testing import Result, event, run, run_settled, settled

INTENT = {
    "id": "pi_1",
    "object": "payment_intent",
    "amount": 9_900,
    "amount_received": 9_899,
    "currency": "jpy",
    "customer": "cus_1",
    "description": "Two chairs",
}


def one(event_type: str, subject: dict[str, Any], **more: Any) -> tuple[str, str, Any]:
    [outcome] = run(handlers, event(event_type, subject), **more).outcomes
    return outcome.type, outcome.key, outcome.data


def test_the_example_is_registered_without_a_fault() -> None:
    handlers.check()
    assert handlers.types() == (
        "charge.dispute.*",
        "charge.refunded",
        "customer.subscription.*",
        "invoice.paid",
        "payment_intent.payment_failed",
        "payment_intent.succeeded",
    )


def test_a_payment() -> None:
    assert one("payment_intent.succeeded", INTENT) == (
        "payment.succeeded",
        "pi_1",
        {
            "payment_intent": "pi_1",
            "amount": 9_899,
            "currency": "jpy",
            "customer": "cus_1",
            "description": "Two chairs",
        },
    )


def test_a_payment_counts_once_however_many_events_tell_of_it() -> None:
    first = run(handlers, event("payment_intent.succeeded", INTENT))
    assert first.facts == [("payment", "pi_1")]
    again = event("payment_intent.succeeded", INTENT, event_id="evt_test_2")
    assert run(handlers, again, taken=first.facts) == Result()


@pytest.mark.parametrize(
    ("customer", "expected"),
    [
        (None, None),
        ("cus_1", "cus_1"),
        ({"id": "cus_1", "object": "customer"}, "cus_1"),
        ({"object": "customer"}, None),
        (5, None),
    ],
)
def test_a_customer_may_be_missing_or_expanded(customer: object, expected: str | None) -> None:
    _, _, data = one("payment_intent.succeeded", {**INTENT, "customer": customer})
    assert data["customer"] == expected


@pytest.mark.parametrize("missing", ["customer", "currency", "description", "amount_received"])
def test_a_payment_without_a_field(missing: str) -> None:
    _, _, data = one("payment_intent.succeeded", {name: value for name, value in INTENT.items() if name != missing})
    assert data["payment_intent"] == "pi_1"
    assert data["amount"] == (9_900 if missing == "amount_received" else 9_899)


@pytest.mark.parametrize(("error", "code"), [({"code": "card_declined"}, "card_declined"), (None, None), ({}, None)])
def test_a_failed_payment(error: object, code: str | None) -> None:
    assert one("payment_intent.payment_failed", {**INTENT, "last_payment_error": error}) == (
        "payment.failed",
        "pi_1",
        {"payment_intent": "pi_1", "customer": "cus_1", "code": code},
    )


def test_each_failed_try_is_told() -> None:
    assert run(handlers, event("payment_intent.payment_failed", INTENT)).facts == []


def test_a_refund() -> None:
    charge = {
        "id": "ch_1",
        "object": "charge",
        "payment_intent": {"id": "pi_1"},
        "amount_refunded": 5_800,
        "currency": "jpy",
        "refunded": False,
    }
    assert one("charge.refunded", charge) == (
        "charge.refunded",
        "ch_1",
        {"charge": "ch_1", "payment_intent": "pi_1", "amount_refunded": 5_800, "currency": "jpy", "refunded": False},
    )


def test_a_paid_invoice() -> None:
    invoice = {"id": "in_1", "object": "invoice", "amount_paid": 5_120, "currency": "kwd", "customer": None}
    assert one("invoice.paid", invoice) == (
        "invoice.paid",
        "in_1",
        {"invoice": "in_1", "amount_paid": 5_120, "currency": "kwd", "customer": None},
    )
    assert run(handlers, event("invoice.paid", invoice), taken=[("invoice-paid", "in_1")]).outcomes == []


@pytest.mark.parametrize("change", ["created", "updated", "deleted", "trial_will_end"])
def test_a_subscription(change: str) -> None:
    subscription = {"id": "sub_1", "object": "subscription", "status": "active", "customer": "cus_1"}
    assert one(f"customer.subscription.{change}", subscription) == (
        "subscription.changed",
        "sub_1",
        {
            "subscription": "sub_1",
            "customer": "cus_1",
            "status": "active",
            "change": change,
            "event_created": "2026-01-01T00:00:00+00:00",
        },
    )


def test_a_dispute() -> None:
    dispute = {"id": "dp_1", "object": "dispute", "charge": "ch_1", "amount": 99, "currency": "usd", "status": "won"}
    assert one("charge.dispute.closed", dispute) == (
        "dispute.changed",
        "dp_1",
        {
            "dispute": "dp_1",
            "charge": "ch_1",
            "amount": 99,
            "currency": "usd",
            "status": "won",
            "change": "closed",
            "event_created": "2026-01-01T00:00:00+00:00",
        },
    )


def test_sums_beyond_32_bits_stay_exact() -> None:
    _, _, data = one("payment_intent.succeeded", {**INTENT, "amount_received": 9_999_999_900, "currency": "idr"})
    assert data["amount"] == 9_999_999_900


def test_the_declared_facts_are_those_that_are_claimed() -> None:
    """A declaration that names another fact would cost a rerun of the batch for each repeat."""
    for event_type, subject in (("payment_intent.succeeded", INTENT), ("invoice.paid", {"id": "in_1"})):
        made = event(event_type, subject)
        [handler] = handlers.for_type(event_type)
        assert handler.facts is not None
        assert list(handler.facts(made)) == run(handlers, made).facts


def test_other_types_are_ignored() -> None:
    assert run(handlers, event("charge.succeeded", {"id": "ch_1"})).ignored


def test_a_deposit_is_given_back_once_it_is_paid() -> None:
    deposit = INTENT | {"metadata": {"deposit": "chair"}}
    [asked] = run(handlers, event("payment_intent.succeeded", deposit)).operations
    assert (asked.effect, asked.subject) == ("give_back", "pi_1")
    assert asked.call == StripeCall.refund(payment_intent="pi_1", amount=9_899)
    [outcome] = run_settled(handlers, settled(asked, "succeeded")).outcomes
    assert (outcome.type, outcome.key) == ("deposit.refund.succeeded", "pi_1")
    others: list[Any] = [{}, None, "deposit", 7]
    for metadata in others:
        assert run(handlers, event("payment_intent.succeeded", INTENT | {"metadata": metadata})).operations == []


def test_how_an_order_was_charged() -> None:
    assert charge_order.name == "charge_order"
    assert set(handlers.effects) == {"give_back", "charge_order"}
