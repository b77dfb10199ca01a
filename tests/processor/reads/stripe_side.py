"""What Stripe has, made through Stripe's own library."""

from __future__ import annotations

import json
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


def thin_events(simulator: Simulator) -> list[bytes]:
    """The thin events of the simulator as they are pushed, oldest first."""
    found = client_of(simulator).raw_request("get", "/v2/core/events", limit=100).data["data"]
    return [
        json.dumps({name: one[name] for name in one if name not in {"data", "snapshot_event"}}).encode()
        for one in found[::-1]
    ]
