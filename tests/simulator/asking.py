"""Requests that the tests ask again and again."""

from __future__ import annotations

from typing import Any

import requests
import stripe

PAY = {"amount": 2000, "currency": "usd", "confirm": True, "payment_method": "pm_card_visa"}
TIMEOUT_SECONDS = 10.0


def pay(client: stripe.StripeClient, *, key: str | None = None, operation: str = "op_1", **more: Any) -> Any:
    """A charge of 20.00 usd in one request."""
    params = {**PAY, "metadata": {"onceflow_operation": operation}, **more}
    return client.v1.payment_intents.create(params, {"idempotency_key": key} if key else {})  # type: ignore[arg-type]


def refund(
    client: stripe.StripeClient, intent: str, *, key: str | None = None, operation: str = "op_r", **more: Any
) -> Any:
    """A refund of what is left."""
    params = {"payment_intent": intent, "metadata": {"onceflow_operation": operation}, **more}
    return client.v1.refunds.create(params, {"idempotency_key": key} if key else {})  # type: ignore[arg-type]


def post(
    url: str, path: str, body: str | bytes = "", *, key: str | None = None, api_key: str = "sk_test_raw", **headers: str
) -> requests.Response:
    """A request without any library's manners; header names with ``_`` for ``-``."""
    sent = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/x-www-form-urlencoded"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    if key is not None:
        sent["Idempotency-Key"] = key
    return requests.post(url + path, data=body, headers=sent, timeout=TIMEOUT_SECONDS, allow_redirects=False)


def get(url: str, path: str, *, api_key: str = "sk_test_raw", **headers: str) -> requests.Response:
    """The same for reading."""
    sent = {"Authorization": f"Bearer {api_key}"} | {name.replace("_", "-"): value for name, value in headers.items()}
    return requests.get(url + path, headers=sent, timeout=TIMEOUT_SECONDS, allow_redirects=False)


def types(client: stripe.StripeClient) -> list[str]:
    """The types of all events, oldest first."""
    return [str(event.type) for event in client.v1.events.list({"limit": 100}).data][::-1]
