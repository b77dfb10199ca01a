"""What else Stripe has, as far as tests of an application need it."""

from __future__ import annotations

from typing import Any

import pytest
import stripe

from onceflow_simulator import Simulator, SimulatorRefused
from tests.simulator.asking import pay, refund, types


def a_price(client: stripe.StripeClient, *, currency: str = "usd", recurring: bool = False) -> str:
    product = client.v1.products.create({"name": "a thing"}).id
    params: Any = {"product": product, "unit_amount": 1500, "currency": currency}
    if recurring:
        params["recurring"] = {"interval": "month"}
    return client.v1.prices.create(params).id


def test_a_customer_comes_and_goes(client: stripe.StripeClient) -> None:
    customer = client.v1.customers.create({"email": "a@example.com", "balance": -500})
    assert (customer.email, customer.balance) == ("a@example.com", -500)
    assert [one.id for one in client.v1.customers.list({"email": "a@example.com"}).data] == [customer.id]
    client.v1.customers.delete(customer.id)
    assert client.v1.customers.list({}).data == []
    assert client.v1.customers.retrieve(customer.id).deleted is True
    assert types(client) == ["customer.created", "customer.deleted"]
    with pytest.raises(stripe.InvalidRequestError):
        pay(client, customer=customer.id)


def test_a_payment_method_is_attached_and_detached(client: stripe.StripeClient) -> None:
    customer = client.v1.customers.create({}).id
    method = client.v1.payment_methods.attach("pm_card_chargeCustomerFail", {"customer": customer})
    assert method.id != "pm_card_chargeCustomerFail"
    assert [one.id for one in client.v1.customers.payment_methods.list(customer).data] == [method.id]
    with pytest.raises(stripe.CardError):
        pay(client, customer=customer, payment_method=method.id)
    client.v1.payment_methods.detach(method.id)
    assert client.v1.customers.payment_methods.list(customer).data == []
    with pytest.raises(stripe.InvalidRequestError):
        client.v1.payment_methods.attach("pm_card_gold", {"customer": customer})


def test_a_payment_method_of_a_number(client: stripe.StripeClient) -> None:
    card: Any = {"number": "4000000000009995", "exp_month": 12, "exp_year": 2040, "cvc": "123"}
    method = client.v1.payment_methods.create({"type": "card", "card": card})
    with pytest.raises(stripe.CardError) as declined:
        pay(client, payment_method=method.id)
    assert declined.value.error is not None
    assert declined.value.error.decline_code == "insufficient_funds"


@pytest.mark.parametrize(("act", "status", "net"), [("dispute_won", "won", 0), ("dispute_lost", "lost", -2000)])
def test_a_dispute(simulator: Simulator, client: stripe.StripeClient, act: str, status: str, net: int) -> None:
    charge = pay(client, payment_method="pm_card_createDispute").latest_charge
    (dispute,) = client.v1.disputes.list({"charge": charge}).data
    assert (dispute.status, dispute.amount, dispute.charge) == ("needs_response", 2000, charge)
    simulator.act(act, dispute.id)
    with pytest.raises(SimulatorRefused, match="already closed"):
        simulator.act("dispute_won", dispute.id)
    ended = client.v1.disputes.retrieve(dispute.id)
    assert ended.status == status
    assert sum(one.amount for one in ended.balance_transactions) == net
    told = [name for name in types(client) if "dispute" in name]
    assert told[:3] == ["charge.dispute.created", "charge.dispute.funds_withdrawn", "charge.dispute.closed"]
    assert (told[3:] == ["charge.dispute.funds_reinstated"]) == (status == "won")
    assert simulator.ledger().count("dispute") == 1


def test_an_inquiry_takes_no_money(simulator: Simulator, client: stripe.StripeClient) -> None:
    charge = pay(client, payment_method="pm_card_createDisputeInquiry").latest_charge
    (dispute,) = client.v1.disputes.list({"charge": charge}).data
    assert (dispute.status, dispute.balance_transactions) == ("warning_needs_response", [])
    assert client.v1.disputes.update(dispute.id, {"submit": True}).status == "warning_under_review"
    client.v1.disputes.close(dispute.id)
    with pytest.raises(stripe.InvalidRequestError):
        client.v1.disputes.close(dispute.id)
    assert simulator.ledger().count("dispute") == 0


def test_a_charge_tells_its_running_total(client: stripe.StripeClient) -> None:
    intent = pay(client, amount=2500)
    for amount in (1000, 500, 1000):
        refund(client, intent.id, amount=amount)
    told = client.v1.events.list({"type": "charge.refunded"}).data[::-1]
    assert [event.data.object["amount_refunded"] for event in told] == [1000, 1500, 2500]


def test_a_checkout_session_is_completed_and_unpaid_until_the_debit_settles(
    simulator: Simulator, client: stripe.StripeClient
) -> None:
    for account_number, last in (("AT611904300234573201", "succeeded"), ("AT861904300235473202", "failed")):
        line: Any = {"price": a_price(client, currency="eur"), "quantity": 2}
        session = client.v1.checkout.sessions.create(
            {"mode": "payment", "line_items": [line], "success_url": "https://shop.example", "metadata": {"order": "9"}}
        )
        assert (session.status, session.payment_status, session.amount_total) == ("open", "unpaid", 3000)
        method = client.v1.payment_methods.create({"type": "sepa_debit", "sepa_debit": {"iban": account_number}}).id
        client.raw_request("post", f"/v1/payment_pages/{session.id}/confirm", payment_method=method)
        done = client.v1.checkout.sessions.retrieve(session.id)
        assert (done.status, done.payment_status) == ("complete", "unpaid")
        simulator.advance(60)
        assert types(client)[-1] == f"checkout.session.async_payment_{last}"
        done = client.v1.checkout.sessions.retrieve(session.id)
        assert done.payment_status == ("paid" if last == "succeeded" else "unpaid")
    assert simulator.ledger().amount("charge") == 3000


def test_a_session_expires(client: stripe.StripeClient) -> None:
    session = client.v1.checkout.sessions.create({"mode": "payment", "success_url": "https://shop.example"})
    assert client.v1.checkout.sessions.expire(session.id).status == "expired"
    with pytest.raises(stripe.InvalidRequestError):
        client.v1.checkout.sessions.expire(session.id)


def an_invoice(client: stripe.StripeClient, customer: str, *, amount: int = 2000) -> str:
    client.v1.invoice_items.create({"customer": customer, "amount": amount, "currency": "usd"})
    return client.v1.invoices.create({"customer": customer, "pending_invoice_items_behavior": "include"}).id or ""


def test_an_invoice_is_paid(simulator: Simulator, client: stripe.StripeClient) -> None:
    customer = client.v1.customers.create({}).id
    client.v1.payment_methods.attach("pm_card_visa", {"customer": customer})
    invoice = client.v1.invoices.pay(an_invoice(client, customer))
    assert (invoice.status, invoice.amount_paid, invoice.attempt_count) == ("paid", 2000, 1)
    assert types(client)[-2:] == ["invoice.paid", "invoice.payment_succeeded"]
    assert simulator.ledger().amount("charge") == 2000
    with pytest.raises(stripe.InvalidRequestError) as again:
        client.v1.invoices.pay(invoice.id or "")
    assert again.value.code == "invoice_already_paid"


def test_an_invoice_fails_and_is_paid_later(simulator: Simulator, client: stripe.StripeClient) -> None:
    customer = client.v1.customers.create({}).id
    invoice = an_invoice(client, customer)
    for attempt in (1, 2):
        with pytest.raises(stripe.CardError):
            client.v1.invoices.pay(invoice, {"payment_method": "pm_card_chargeCustomerFail"})
        failed = client.v1.events.list({"type": "invoice.payment_failed"}).data[0]
        assert failed.data.object["attempt_count"] == attempt
    client.v1.invoices.pay(invoice, {"payment_method": "pm_usBankAccount_success"})
    assert client.v1.invoices.retrieve(invoice).status == "open"
    with pytest.raises(stripe.InvalidRequestError, match="still processing"):
        client.v1.invoices.pay(invoice, {"payment_method": "pm_card_visa"})
    simulator.advance(10)
    assert client.v1.invoices.retrieve(invoice).status == "paid"
    assert simulator.ledger().amount("charge") == 2000


def test_the_ends_of_an_invoice(client: stripe.StripeClient) -> None:
    customer = client.v1.customers.create({}).id
    draft, void, lost = (an_invoice(client, customer) for _ in range(3))
    client.v1.invoices.delete(draft)
    client.v1.invoices.finalize_invoice(void)
    client.v1.invoices.send_invoice(lost)
    credit = client.v1.credit_notes.create({"invoice": void, "amount": 500})
    assert client.v1.credit_notes.void_credit_note(credit.id).status == "void"
    assert client.v1.invoices.void_invoice(void).status == "void"
    assert client.v1.invoices.mark_uncollectible(lost).status == "uncollectible"
    with pytest.raises(stripe.InvalidRequestError):
        client.v1.invoices.void_invoice(void)
    with pytest.raises(stripe.InvalidRequestError):
        client.v1.invoices.delete(lost)


@pytest.mark.parametrize(
    ("method", "status"), [("pm_card_visa", "active"), ("pm_card_chargeCustomerFail", "incomplete")]
)
def test_a_subscription(simulator: Simulator, client: stripe.StripeClient, method: str, status: str) -> None:
    customer = client.v1.customers.create({"payment_method": method}).id
    item: Any = {"price": a_price(client, recurring=True), "quantity": 2}
    subscription = client.v1.subscriptions.create({"customer": customer, "items": [item]})
    assert subscription.status == status
    assert simulator.ledger().amount("charge") == (3000 if status == "active" else 0)
    an_invoice(client, customer)
    (first,) = client.v1.invoices.list({"subscription": subscription.id}).data
    assert first.id == subscription.latest_invoice
    assert client.v1.subscriptions.cancel(subscription.id).status == "canceled"


def test_a_trial_that_ends_without_a_card_pauses(client: stripe.StripeClient) -> None:
    customer = client.v1.customers.create({}).id
    item: Any = {"price": a_price(client, recurring=True)}
    settings: Any = {"end_behavior": {"missing_payment_method": "pause"}}
    subscription = client.v1.subscriptions.create(
        {"customer": customer, "items": [item], "trial_period_days": 3, "trial_settings": settings}
    )
    assert subscription.status == "trialing"
    assert types(client)[-1] == "customer.subscription.trial_will_end"
    assert client.v1.subscriptions.update(subscription.id, {"trial_end": "now"}).status == "paused"


def test_a_coupon_gives_a_discount(client: stripe.StripeClient) -> None:
    coupon = client.v1.coupons.create({"percent_off": 20}).id
    client.raw_request("post", "/v1/customers", coupon=coupon)
    assert types(client) == ["coupon.created", "customer.created", "customer.discount.created"]


def test_money_on_its_way(simulator: Simulator, client: stripe.StripeClient) -> None:
    account = client.v1.accounts.create({}).id
    transfer = client.v1.transfers.create({"amount": 1000, "currency": "usd", "destination": account})
    client.v1.transfers.reversals.create(transfer.id, {"amount": 400})
    assert client.v1.transfers.retrieve(transfer.id).amount_reversed == 400
    with pytest.raises(stripe.InvalidRequestError):
        client.v1.transfers.reversals.create(transfer.id, {"amount": 601})
    client.v1.payouts.create({"amount": 700, "currency": "usd"})
    assert (simulator.ledger().amount("transfer"), simulator.ledger().amount("payout")) == (1000, 700)


def test_a_setup_intent(client: stripe.StripeClient) -> None:
    customer = client.v1.customers.create({}).id
    done = client.v1.setup_intents.create({"customer": customer, "payment_method": "pm_card_visa", "confirm": True})
    assert done.status == "succeeded"
    with pytest.raises(stripe.InvalidRequestError):
        client.v1.setup_intents.cancel(done.id)
    with pytest.raises(stripe.CardError):
        client.v1.setup_intents.create({"payment_method": "pm_card_chargeDeclined", "confirm": True})
    waiting = client.v1.setup_intents.create({})
    with pytest.raises(stripe.InvalidRequestError):
        client.v1.setup_intents.confirm(waiting.id)
    asks = client.v1.setup_intents.confirm(waiting.id, {"payment_method": "pm_card_authenticationRequired"})
    assert asks.status == "requires_action"


def test_a_setup_intent_keeps_the_method_of_an_update(client: stripe.StripeClient) -> None:
    waiting = client.v1.setup_intents.create({}).id
    given = client.v1.setup_intents.update(waiting, {"payment_method": "pm_card_chargeDeclined"})
    assert given.status == "requires_confirmation"
    with pytest.raises(stripe.CardError):
        client.v1.setup_intents.confirm(waiting)


def test_deleted_and_changed_things_of_the_catalogue(client: stripe.StripeClient) -> None:
    product = client.v1.products.create({"name": "a thing", "active": True, "metadata": {"on": "true"}})
    assert (product.active, product.metadata.to_dict()) == (True, {"on": "true"})
    assert client.v1.products.update(product.id, {"active": False}).active is False
    client.v1.products.delete(product.id)
    with pytest.raises(stripe.InvalidRequestError):
        client.v1.products.retrieve(product.id)
    assert types(client) == ["product.created", "product.updated", "product.deleted"]


def a_long_invoice(client: stripe.StripeClient, *, lines: int) -> stripe.Invoice:
    customer = client.v1.customers.create({}).id
    for n in range(lines):
        client.v1.invoice_items.create({"customer": customer, "amount": 1000 + n, "currency": "usd"})
    return client.v1.invoices.create({"customer": customer, "pending_invoice_items_behavior": "include"})


def test_an_invoice_shows_its_first_lines_and_has_pages_of_all(client: stripe.StripeClient) -> None:
    invoice = a_long_invoice(client, lines=37)
    assert invoice.total == sum(range(1000, 1037))
    assert [line.amount for line in invoice.lines.data] == list(range(1000, 1010))
    assert (invoice.lines.has_more, invoice.lines.total_count) == (True, 37)  # type: ignore[attr-defined]
    (event,) = client.v1.events.list({"type": "invoice.created"}).data
    told = event.data.object["lines"]
    assert (len(told["data"]), told["has_more"], told["url"]) == (10, True, f"/v1/invoices/{invoice.id}/lines")
    assert invoice.id is not None
    page = client.v1.invoices.line_items.list(invoice.id, {"limit": 20})
    assert [line.amount for line in page.auto_paging_iter()] == list(range(1000, 1037))
    back = client.v1.invoices.line_items.list(invoice.id, {"limit": 3, "ending_before": page.data[5].id})
    assert [line.amount for line in back.data] == [1002, 1003, 1004]
    with pytest.raises(stripe.InvalidRequestError):
        client.v1.invoices.line_items.list(invoice.id, {"starting_after": "il_nobody"})


def test_an_invoice_with_few_lines_shows_them_all(client: stripe.StripeClient) -> None:
    invoice = a_long_invoice(client, lines=10)
    assert (len(invoice.lines.data), invoice.lines.has_more) == (10, False)
