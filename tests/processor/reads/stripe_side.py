"""What Stripe has, made through Stripe's own library."""

from __future__ import annotations

from typing import Any, cast

import stripe

from onceflow_simulator import Simulator


def client_of(simulator: Simulator, *, account: str | None = None) -> stripe.StripeClient:
    """Stripe's own library, pointed at the simulator."""
    stripe.enable_telemetry = False
    return stripe.StripeClient(
        simulator.api_key,
        stripe_account=account,
        base_addresses={"api": cast("Any", simulator.url)},
        max_network_retries=0,
    )


def long_invoice(client: stripe.StripeClient, *, lines: int, amount: int = 1000) -> stripe.Invoice:
    """An invoice of so many lines."""
    customer = client.v1.customers.create({}).id
    for _ in range(lines):
        client.v1.invoice_items.create({"customer": customer, "amount": amount, "currency": "usd"})
    return client.v1.invoices.create({"customer": customer, "pending_invoice_items_behavior": "include"})
