"""Ready-made effects, for ``handlers.use``: what most platforms ask Stripe and others for.

Rule: they are plain functions that return a call, as a user's own effect is; nothing knows them by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onceflow_schemas.operations.calls import Charge, HttpCall, Mail, StripeCall


def charge(
    *,
    amount: int,
    currency: str,
    payment_method: str,
    customer: str | None = None,
    off_session: bool = False,
    error_on_requires_action: bool = False,
    capture: bool = True,
    description: str | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Charge:
    """Charge a payment method ``amount`` minor units; arguments as those of ``Charge``."""
    return Charge(
        amount=amount,
        currency=currency,
        payment_method=payment_method,
        customer=customer,
        off_session=off_session,
        error_on_requires_action=error_on_requires_action,
        capture=capture,
        description=description,
        metadata=metadata or {},
    )


def refund(
    *,
    charge: str | None = None,
    payment_intent: str | None = None,
    amount: int | None = None,
    currency: str | None = None,
    reason: str | None = None,
    metadata: Mapping[str, str] | None = None,
) -> StripeCall:
    """Refund a charge or payment intent: all that is left of it, or ``amount`` minor units."""
    return StripeCall.refund(
        charge=charge,
        payment_intent=payment_intent,
        amount=amount,
        currency=currency,
        reason=reason,
        metadata=metadata,
    )


def capture(*, payment_intent: str, amount_to_capture: int | None = None) -> StripeCall:
    """Capture an authorised payment intent, all of it or ``amount_to_capture`` minor units."""
    return StripeCall.capture(payment_intent, amount_to_capture=amount_to_capture)


def cancel(*, payment_intent: str, cancellation_reason: str | None = None) -> StripeCall:
    """Cancel a payment intent that has not been captured."""
    return StripeCall.cancel(payment_intent, cancellation_reason=cancellation_reason)


def mail(*, sender: str, to: str, title: str, text: str, html: str | None = None) -> Mail:
    """Send one mail to one address; ``title`` is its subject line."""
    return Mail(sender=sender, to=to, subject=title, text=text, html=html)


def http_post(
    *, url: str, json: Any = None, headers: Mapping[str, str] | None = None, credential: str | None = None
) -> HttpCall:
    """Post JSON to a service that takes an Idempotency-Key, as mail and messaging services do."""
    return HttpCall(url=url, json=json, headers=headers or {}, credential=credential)
