"""The calls whose shapes stripe-mock judges: what the product asks Stripe for by itself. Add a line for a new one.

``{}`` in a path stands for an id.  The look-ups of what users' own effects make are in ``test_look_ups``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class ApiCall:
    """One call.

    Args:
        params: as the library takes them.
    """

    method: Literal["get", "post", "delete"]
    path: str
    params: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.method} {self.path} {'+'.join(self.params)}"


METADATA = {"onceflow_operation": "0b5f7a4e-0000-5000-8000-000000000000"}

CALLS = (
    # A charge in two steps, and its end.
    ApiCall("post", "/v1/payment_intents", {"amount": 2000, "currency": "usd", "metadata": METADATA}),
    ApiCall(
        "post",
        "/v1/payment_intents",
        {
            "amount": 2000,
            "currency": "usd",
            "customer": "cus_1",
            "description": "order 6735",
            "capture_method": "manual",
            "metadata": METADATA,
        },
    ),
    ApiCall("post", "/v1/payment_intents/{}/confirm", {"payment_method": "pm_card_visa"}),
    ApiCall(
        "post",
        "/v1/payment_intents/{}/confirm",
        {"payment_method": "pm_card_visa", "off_session": True, "error_on_requires_action": True},
    ),
    ApiCall("post", "/v1/payment_intents/{}/confirm", {"payment_method": "pm_1", "return_url": "https://shop.example"}),
    ApiCall("post", "/v1/payment_intents/{}/cancel", {}),
    ApiCall("post", "/v1/payment_intents/{}/cancel", {"cancellation_reason": "abandoned"}),
    ApiCall("post", "/v1/payment_intents/{}/capture", {}),
    ApiCall("post", "/v1/payment_intents/{}/capture", {"amount_to_capture": 1500}),
    ApiCall("get", "/v1/payment_intents/{}", {}),
    ApiCall("get", "/v1/payment_intents/{}", {"expand": ["latest_charge"]}),
    ApiCall("get", "/v1/payment_intents", {"customer": "cus_1", "created": {"gte": 1_800_000_000}, "limit": 100}),
    ApiCall("get", "/v1/payment_intents", {"limit": 100, "starting_after": "pi_1"}),
    # Refunds.
    ApiCall("post", "/v1/refunds", {"payment_intent": "pi_1", "metadata": METADATA}),
    ApiCall("post", "/v1/refunds", {"charge": "ch_1", "amount": 500, "reason": "duplicate", "metadata": METADATA}),
    ApiCall("get", "/v1/refunds/{}", {}),
    ApiCall("get", "/v1/refunds", {"payment_intent": "pi_1", "limit": 100}),
    ApiCall("get", "/v1/refunds", {"charge": "ch_1", "created": {"gte": 1_800_000_000}, "limit": 100}),
    # What is looked up.
    ApiCall("get", "/v1/charges/{}", {}),
    ApiCall("get", "/v1/charges", {"payment_intent": "pi_1", "limit": 100}),
    ApiCall("post", "/v1/customers", {"email": "buyer@example.com", "metadata": METADATA}),
    ApiCall("get", "/v1/customers/{}", {}),
    ApiCall("get", "/v1/account", {}),
    ApiCall("get", "/v1/disputes", {"charge": "ch_1"}),
    # Events and endpoints.
    ApiCall("get", "/v1/events", {"limit": 100, "created": {"gte": 1_800_000_000}}),
    ApiCall("get", "/v1/events", {"limit": 100, "ending_before": "evt_1"}),
    ApiCall("get", "/v1/events", {"limit": 100, "starting_after": "evt_1", "types": ["charge.refunded"]}),
    ApiCall("get", "/v1/events", {"type": "payment_intent.*", "delivery_success": False}),
    ApiCall("get", "/v1/events/{}", {}),
    ApiCall("get", "/v1/webhook_endpoints", {"limit": 100}),
    ApiCall("get", "/v1/webhook_endpoints/{}", {}),
)
