"""Ready-made effects say the call that their name says."""

from __future__ import annotations

from typing import Any

import pytest

from onceflow import effects
from onceflow_processor.handlers import Handlers
from onceflow_schemas.operations.calls import Charge, HttpCall, Mail, StripeCall


@pytest.mark.parametrize(
    ("name", "args", "call"),
    [
        ("refund", {"charge": "ch_1", "amount": 5}, StripeCall.post("/v1/refunds", charge="ch_1", amount=5)),
        (
            "refund",
            {"payment_intent": "pi_1", "reason": "duplicate", "metadata": {"a": "b"}},
            StripeCall.post("/v1/refunds", payment_intent="pi_1", reason="duplicate", metadata={"a": "b"}),
        ),
        (
            "charge",
            {"amount": 100, "currency": "usd", "payment_method": "pm_1", "off_session": True},
            Charge(amount=100, currency="usd", payment_method="pm_1", off_session=True),
        ),
        (
            "capture",
            {"payment_intent": "pi_1", "amount_to_capture": 5},
            StripeCall.post("/v1/payment_intents/pi_1/capture", amount_to_capture=5),
        ),
        ("cancel", {"payment_intent": "pi_1"}, StripeCall.post("/v1/payment_intents/pi_1/cancel")),
        (
            "mail",
            {"sender": "a@example.org", "to": "b@example.org", "title": "T", "text": "x"},
            Mail(sender="a@example.org", to="b@example.org", subject="T", text="x"),
        ),
        (
            "http_post",
            {"url": "https://mail.example.org/send", "json": {"a": 1}, "credential": "mail"},
            HttpCall(url="https://mail.example.org/send", json={"a": 1}, credential="mail"),
        ),
    ],
)
def test_the_call_of_each(name: str, args: dict[str, Any], call: object) -> None:
    handlers = Handlers()
    effect = handlers.use(getattr(effects, name))
    handlers.check()
    assert effect.name == name
    assert effect(**args) == call


def test_all_of_them_can_be_used_together() -> None:
    handlers = Handlers()
    for name in effects.__all__:
        handlers.use(getattr(effects, name))
    handlers.check()
    assert sorted(handlers.effects) == ["cancel", "capture", "charge", "http_post", "mail", "refund"]
