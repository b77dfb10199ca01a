"""Objects as Stripe renders them: charges, intents, invoices, subscriptions, disputes and their neighbours.

Rule: an object here has the fields, the types and the nesting of the real one (API version 2024-06-20), and every
value is made up.  All randomness comes from the generator that is handed in, so that a seed is a whole world.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from random import Random
from typing import Any

Object = dict[str, Any]

API_VERSION = "2024-06-20"
ALPHABET = string.ascii_letters + string.digits
ID_LENGTH = 24

FIRST_NAMES = ("Zoë", "Jürgen", "Amélie", "Noor", "Bartłomiej", "Ines", "Óscar", "Mei", "Tunde", "Sofía", "Lars", "愛")
LAST_NAMES = ("Müller", "O'Neill", "Nguyễn", "Kowalska", "García", "Okafor", "Lindström", "田中", "Rossi", "Haddad")
CITIES = (("Köln", "DE"), ("Orléans", "FR"), ("Łódź", "PL"), ("Dublin", "IE"), ("Málaga", "ES"), ("Gent", "BE"))
CARD_BRANDS = (("visa", "4242"), ("mastercard", "4444"), ("amex", "0005"), ("visa", "5556"))
CURRENCIES = ("usd", "usd", "eur", "eur", "gbp", "jpy")
"""More dollars and euros than others; the yen has no minor unit, so nobody may multiply by 100."""


@dataclass(frozen=True, slots=True)
class Customer:
    """Who pays in a story: one person, one currency."""

    id: str
    name: str
    email: str
    currency: str


def new_id(prefix: str, random: Random) -> str:
    """Return an id in Stripe's form: ``<prefix>_`` and 24 letters and digits."""
    return f"{prefix}_{''.join(random.choices(ALPHABET, k=ID_LENGTH))}"


def new_customer(random: Random) -> Customer:
    """Return a made-up customer."""
    name = f"{random.choice(FIRST_NAMES)} {random.choice(LAST_NAMES)}"
    email = f"{''.join(random.choices(string.ascii_lowercase, k=8))}@example.com"
    return Customer(new_id("cus", random), name, email, random.choice(CURRENCIES))


def address(random: Random) -> Object:
    """Return a postal address."""
    city, country = random.choice(CITIES)
    return {
        "city": city,
        "country": country,
        "line1": f"{random.randrange(1, 200)} Example Street",
        "line2": None,
        "postal_code": f"{random.randrange(10_000, 99_999)}",
        "state": None,
    }


def billing_details(customer: Customer, random: Random) -> Object:
    """Return the billing details that stand on charges and payment methods."""
    return {"address": address(random), "email": customer.email, "name": customer.name, "phone": None}


def payment_intent(
    customer: Customer, random: Random, *, id: str, amount: int, status: str, charge: str | None, created: int
) -> Object:
    """Return a payment intent; ``amount`` in minor units of the customer's currency."""
    paid = status == "succeeded"
    return {
        "id": id,
        "object": "payment_intent",
        "amount": amount,
        "amount_capturable": 0,
        "amount_details": {"tip": {}},
        "amount_received": amount if paid else 0,
        "application": None,
        "application_fee_amount": None,
        "automatic_payment_methods": {"allow_redirects": "always", "enabled": True},
        "canceled_at": None,
        "cancellation_reason": None,
        "capture_method": "automatic",
        "client_secret": None,
        "confirmation_method": "automatic",
        "created": created,
        "currency": customer.currency,
        "customer": customer.id,
        "description": f"Order for {customer.name}",
        "last_payment_error": None
        if paid
        else {"code": "card_declined", "decline_code": "generic_decline", "type": "card_error"},
        "latest_charge": charge,
        "livemode": False,
        "metadata": {"order": f"order-{random.randrange(10**6)}"},
        "next_action": None,
        "payment_method": new_id("pm", random),
        "payment_method_options": {"card": {"request_three_d_secure": "automatic"}},
        "payment_method_types": ["card", "link"],
        "receipt_email": customer.email,
        "setup_future_usage": None,
        "shipping": {"address": address(random), "carrier": None, "name": customer.name, "phone": None},
        "statement_descriptor": None,
        "status": status,
        "transfer_group": None,
    }


def charge(
    customer: Customer, random: Random, *, id: str, intent: str, amount: int, refunded: int, paid: bool, created: int
) -> Object:
    """Return a charge of an intent; ``refunded`` is cumulative, as at Stripe."""
    brand, last4 = random.choice(CARD_BRANDS)
    return {
        "id": id,
        "object": "charge",
        "amount": amount,
        "amount_captured": amount if paid else 0,
        "amount_refunded": refunded,
        "application": None,
        "balance_transaction": new_id("txn", random) if paid else None,
        "billing_details": billing_details(customer, random),
        "calculated_statement_descriptor": "EXAMPLE SHOP",
        "captured": paid,
        "created": created,
        "currency": customer.currency,
        "customer": customer.id,
        "description": None,
        "disputed": False,
        "failure_code": None if paid else "card_declined",
        "failure_message": None if paid else "Your card was declined.",
        "livemode": False,
        "metadata": {},
        "outcome": {
            "network_status": "approved_by_network" if paid else "declined_by_network",
            "risk_level": "normal",
            "risk_score": random.randrange(70),
            "seller_message": "Payment complete." if paid else "The bank returned the decline code `generic_decline`.",
            "type": "authorized" if paid else "issuer_declined",
        },
        "paid": paid,
        "payment_intent": intent,
        "payment_method": new_id("pm", random),
        "payment_method_details": {
            "card": {
                "brand": brand,
                "country": "US",
                "exp_month": 12,
                "exp_year": 2031,
                "last4": last4,
                "network": brand,
            },
            "type": "card",
        },
        "receipt_email": customer.email,
        "receipt_url": f"https://example.com/receipt?charge={id}&signed=1",
        "refunded": refunded == amount,
        "status": "succeeded" if paid else "failed",
    }


def dispute(
    customer: Customer, random: Random, *, id: str, charge: str, intent: str, amount: int, status: str, created: int
) -> Object:
    """Return a dispute about a charge."""
    return {
        "id": id,
        "object": "dispute",
        "amount": amount,
        "balance_transactions": [],
        "charge": charge,
        "created": created,
        "currency": customer.currency,
        "evidence": {
            "customer_email_address": customer.email,
            "customer_name": customer.name,
            "uncategorized_text": None,
        },
        "evidence_details": {
            "due_by": created + 604_800,
            "has_evidence": False,
            "past_due": False,
            "submission_count": 0,
        },
        "is_charge_refundable": False,
        "livemode": False,
        "metadata": {},
        "payment_intent": intent,
        "reason": random.choice(("fraudulent", "product_not_received", "duplicate")),
        "status": status,
    }


def refund(customer: Customer, random: Random, *, charge: str, intent: str, amount: int, created: int) -> Object:
    """Return a refund of a charge."""
    return {
        "id": new_id("re", random),
        "object": "refund",
        "amount": amount,
        "balance_transaction": new_id("txn", random),
        "charge": charge,
        "created": created,
        "currency": customer.currency,
        "metadata": {},
        "payment_intent": intent,
        "reason": "requested_by_customer",
        "receipt_number": None,
        "status": "succeeded",
    }


def invoice_line(customer: Customer, random: Random, *, subscription: str, amount: int, start: int) -> Object:
    """Return one line of an invoice."""
    return {
        "id": new_id("il", random),
        "object": "line_item",
        "amount": amount,
        "currency": customer.currency,
        "description": f"{random.randrange(1, 40)} \u00d7 Seat (at {amount} / month)",
        "discountable": True,
        "livemode": False,
        "metadata": {},
        "period": {"end": start + 2_592_000, "start": start},
        "price": {"id": new_id("price", random), "object": "price", "type": "recurring", "unit_amount": amount},
        "proration": False,
        "quantity": random.randrange(1, 40),
        "subscription": subscription,
        "type": "subscription",
    }


def invoice(
    customer: Customer, random: Random, *, id: str, subscription: str, status: str, lines: list[Object], created: int
) -> Object:
    """Return an invoice of a subscription with these lines."""
    total = sum(line["amount"] for line in lines)
    paid = status == "paid"
    return {
        "id": id,
        "object": "invoice",
        "account_country": "DE",
        "amount_due": total,
        "amount_paid": total if paid else 0,
        "amount_remaining": 0 if paid else total,
        "attempt_count": 1,
        "auto_advance": not paid,
        "billing_reason": "subscription_cycle",
        "collection_method": "charge_automatically",
        "created": created,
        "currency": customer.currency,
        "customer": customer.id,
        "customer_address": address(random),
        "customer_email": customer.email,
        "customer_name": customer.name,
        "lines": {"object": "list", "data": lines, "has_more": False, "total_count": len(lines)},
        "hosted_invoice_url": f"https://example.com/invoice?id={id}&from=mail",
        "livemode": False,
        "metadata": {},
        "number": f"EX-{random.randrange(10**4):04d}-{random.randrange(10**4):04d}",
        "paid": paid,
        "payment_intent": new_id("pi", random),
        "period_end": created,
        "period_start": created - 2_592_000,
        "status": status,
        "subscription": subscription,
        "subtotal": total,
        "total": total,
    }


def subscription(customer: Customer, random: Random, *, id: str, status: str, created: int) -> Object:
    """Return a subscription."""
    price = {"id": new_id("price", random), "object": "price", "active": True, "type": "recurring", "unit_amount": 1900}
    return {
        "id": id,
        "object": "subscription",
        "application": None,
        "billing_cycle_anchor": created,
        "cancel_at_period_end": False,
        "collection_method": "charge_automatically",
        "created": created,
        "currency": customer.currency,
        "current_period_end": created + 2_592_000,
        "current_period_start": created,
        "customer": customer.id,
        "default_payment_method": new_id("pm", random),
        "items": {
            "object": "list",
            "data": [{"id": new_id("si", random), "object": "subscription_item", "price": price, "quantity": 3}],
            "has_more": False,
        },
        "latest_invoice": new_id("in", random),
        "livemode": False,
        "metadata": {},
        "start_date": created,
        "status": status,
        "trial_end": None,
    }


def customer_object(customer: Customer, random: Random, *, created: int) -> Object:
    """Return the customer as an object of its own."""
    return {
        "id": customer.id,
        "object": "customer",
        "address": address(random),
        "balance": 0,
        "created": created,
        "currency": customer.currency,
        "delinquent": False,
        "email": customer.email,
        "livemode": False,
        "metadata": {},
        "name": customer.name,
        "preferred_locales": ["de", "en"],
    }


def payout(random: Random, *, amount: int, created: int) -> Object:
    """Return a payout to the bank."""
    return {
        "id": new_id("po", random),
        "object": "payout",
        "amount": amount,
        "arrival_date": created + 172_800,
        "automatic": True,
        "created": created,
        "currency": "eur",
        "livemode": False,
        "status": "paid",
        "type": "bank_account",
    }
