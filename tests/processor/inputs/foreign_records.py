"""Events as other people's buses carry them: the record that each format makes of one body.

Judges are not ours: CloudEvents are written by the CloudEvents SDK, signatures by Stripe's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import stripe
from cloudevents.core.bindings.kafka import KafkaMessage, to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent

SECRET = "whsec_of_the_test"
OLD_SECRET = "whsec_before_it"
SIGNED_LONG_AGO = 1_600_000_000

Headers = list[tuple[str, bytes | None]]


class Wrapped(NamedTuple):
    """A record's value and headers."""

    value: bytes
    headers: Headers


def signature(body: bytes, *, secret: str = SECRET, at: int = SIGNED_LONG_AGO) -> bytes:
    """The header that Stripe's own library makes."""
    header: str = stripe.WebhookSignature.generate_signature_header(body.decode("utf-8", "surrogateescape"), secret, at)
    return header.encode()


def _cloudevent(data: Any) -> CloudEvent:
    attributes = {
        "id": "4711",
        "source": "/shop/webhooks",
        "type": "shop.stripe",
        "specversion": "1.0",
        "time": datetime(2026, 1, 1, tzinfo=UTC),
        "datacontenttype": "application/json",
    }
    return CloudEvent(attributes=attributes, data=data)


def _of_message(message: KafkaMessage) -> Wrapped:
    return Wrapped(message.value, list(message.headers.items()))


def stripe_json(body: bytes) -> Wrapped:
    return Wrapped(body, [("Stripe-Signature", signature(body))])


def cloudevents_binary(body: bytes) -> Wrapped:
    """The SDK passes bytes through as they are."""
    made = _of_message(to_binary_event(_cloudevent(json.loads(body))))
    return Wrapped(body, [*made.headers, ("stripe-signature", signature(body))])


def cloudevents_structured(body: bytes) -> Wrapped:
    return _of_message(to_structured_event(_cloudevent(json.loads(body))))


def eventbridge(body: bytes) -> Wrapped:
    """The envelope of Amazon's documentation of partner events."""
    event = json.loads(body)
    envelope = {
        "version": "0",
        "id": "8f3e9f5b-1b0d-4c5a-8d63-0a8b7c6d5e4f",
        "detail-type": event.get("type") if isinstance(event, dict) else None,
        "source": "aws.partner/stripe.com/ed_test_1",
        "account": "506417114321",
        "time": "2026-01-01T00:00:00Z",
        "region": "us-east-1",
        "resources": ["arn:aws:events:us-east-1::event-source/aws.partner/stripe.com/ed_test_1"],
        "detail": event,
    }
    return Wrapped(json.dumps(envelope).encode(), [])


WRAP: dict[str, Callable[[bytes], Wrapped]] = {
    "stripe-json": stripe_json,
    "cloudevents-binary": cloudevents_binary,
    "cloudevents-structured": cloudevents_structured,
    "eventbridge": eventbridge,
}
SIGNED = ("stripe-json", "cloudevents-binary")
ROADS = [*((one, "transport") for one in WRAP), *((one, "stripe-signature") for one in SIGNED)]
"""Every format with every trust rule that it allows."""
