"""What is known about Stripe's paths: which object a call makes or changes, where to find it again, what its status proves.

Rule: a path that is not listed here is sent as it is and has no look-up of ours; nothing about it is guessed.
Source: Stripe's API reference and the parameters in its SDK (create, list) of version 16.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onceflow_schemas.failure import Refused
from onceflow_schemas.operations.evidence import Proof
from onceflow_schemas.operations.request_checks import check_object_id
from onceflow_schemas.quoting import quoted

INTENTS = "/v1/payment_intents"

_MONEY = ("amount", "currency")

REFUND = {
    "succeeded": Proof.DONE,
    "pending": Proof.PROCESSING,
    "requires_action": Proof.NEEDS_ACTION,
    "failed": Proof.ENDED,
    "canceled": Proof.ENDED,
}
PAYOUT = {
    "paid": Proof.DONE,
    "pending": Proof.PROCESSING,
    "in_transit": Proof.PROCESSING,
    "failed": Proof.ENDED,
    "canceled": Proof.ENDED,
}
TOPUP = {
    "succeeded": Proof.DONE,
    "pending": Proof.PROCESSING,
    "failed": Proof.ENDED,
    "canceled": Proof.ENDED,
    "reversed": Proof.ENDED,
}

_INTENT_STATUSES = (
    "requires_payment_method",
    "requires_confirmation",
    "requires_action",
    "processing",
    "requires_capture",
    "succeeded",
)
INTENT_MADE = dict.fromkeys(_INTENT_STATUSES, Proof.DONE) | {"canceled": Proof.ENDED}
"""An intent that was only to be made: it is there."""

CHARGED = {
    "succeeded": Proof.DONE,
    "processing": Proof.PROCESSING,
    "requires_capture": Proof.PROCESSING,
    "requires_action": Proof.NEEDS_ACTION,
    "requires_confirmation": Proof.OPEN,
    "requires_payment_method": Proof.OPEN,
    "canceled": Proof.ENDED,
}
"""An intent that was to charge.  With an error of its last payment, ``requires_payment_method`` is a decline."""

AUTHORISED = CHARGED | {"requires_capture": Proof.DONE}
"""An intent that was to authorise only (``capture_method=manual``)."""

CAPTURED = CHARGED | {"requires_capture": Proof.OPEN}
CANCELLED = dict.fromkeys(_INTENT_STATUSES, Proof.OPEN) | {"canceled": Proof.DONE, "succeeded": Proof.ENDED}

_BEGUN = frozenset({"requires_payment_method", "requires_confirmation", "requires_action", "canceled"})
WITHOUT_EFFECT: Mapping[str, frozenset[str]] = {
    "payment_intent": _BEGUN,
    "setup_intent": _BEGUN,
    "invoice": frozenset({"draft", "void"}),
    "quote": frozenset({"draft", "canceled"}),
    "subscription": frozenset({"incomplete", "incomplete_expired"}),
}
"""Kind -> statuses in which an object is there and nothing has come of it: what a refused request may leave behind."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object that ``POST <path>`` makes.

    Attributes:
        kind: the object's ``object``.
        filters: parameters of the call that the list takes as filters too.
        compared: parameters that the object must repeat.
        statuses: what each status proves; empty when being there is all.
        listed: fixed parameters of the list.
        negative: whether its amount may be zero or less.
    """

    kind: str
    filters: tuple[str, ...] = ()
    compared: tuple[str, ...] = ("currency",)
    statuses: Mapping[str, Proof] = field(default_factory=dict)
    listed: Mapping[str, str] = field(default_factory=dict)
    negative: bool = False


MADE: Mapping[str, Resource] = {
    "/v1/refunds": Resource("refund", ("charge", "payment_intent"), (*_MONEY, "charge", "payment_intent"), REFUND),
    INTENTS: Resource("payment_intent", ("customer",), (*_MONEY, "customer", "capture_method"), INTENT_MADE),
    "/v1/customers": Resource("customer", ("email",)),
    "/v1/invoices": Resource("invoice", ("customer", "subscription"), ("currency", "customer")),
    "/v1/invoiceitems": Resource("invoiceitem", ("customer", "invoice"), (*_MONEY, "customer"), negative=True),
    "/v1/subscriptions": Resource("subscription", ("customer",), ("customer",), listed={"status": "all"}),
    "/v1/transfers": Resource("transfer", ("destination", "transfer_group"), (*_MONEY, "destination")),
    "/v1/payouts": Resource("payout", (), _MONEY, PAYOUT),
    "/v1/topups": Resource("topup", (), _MONEY, TOPUP),
    "/v1/setup_intents": Resource("setup_intent", ("customer",), ("customer",)),
    "/v1/credit_notes": Resource("credit_note", ("invoice",), ("invoice",)),
    "/v1/products": Resource("product"),
    "/v1/prices": Resource("price", ("product",), ("currency", "product")),
    "/v1/coupons": Resource("coupon"),
    "/v1/promotion_codes": Resource("promotion_code", ("coupon",)),
}
"""Kinds that take metadata and whose list takes ``created``: an object of ours is found by our id."""


@dataclass(frozen=True, slots=True)
class Action:
    """A change of one existing object, which that object's own state keeps from happening twice.

    Attributes:
        kind, statuses: as in ``Resource``.
        compared: parameter of the call -> field of the object.
    """

    kind: str
    statuses: Mapping[str, Proof]
    compared: Mapping[str, str] = field(default_factory=dict)


_ACTIONS: Mapping[tuple[str, str], Action] = {
    (INTENTS, "capture"): Action("payment_intent", CAPTURED, {"amount_to_capture": "amount_received"}),
    (INTENTS, "cancel"): Action("payment_intent", CANCELLED),
    (INTENTS, "confirm"): Action("payment_intent", CHARGED),
}

_ACTION_PATH = re.compile(r"(?P<list>/v1/[a-z_]+)/(?P<id>[^/]+)/(?P<verb>[a-z_]+)")


def action_of(path: str) -> Action | None:
    """Return what is known about a change of one object, None when nothing is."""
    found = _ACTION_PATH.fullmatch(path)
    return _ACTIONS.get((found["list"], found["verb"])) if found else None


def shows_effect(kind: object, status: str | None) -> bool:
    """Whether an object in this status says more than that a request for it was begun."""
    return not isinstance(kind, str) or status not in WITHOUT_EFFECT.get(kind, ())


_UPDATES = re.compile(r"/v1/subscriptions/[^/]+|/v1/subscription_items(?:/[^/]+)?")
_PAID_NOW = {"proration_behavior": "always_invoice", "billing_cycle_anchor": "now", "trial_end": "now"}


def charges_at_once(path: str, params: Mapping[str, Any]) -> bool:
    """Whether a call takes a customer's money at once, and nothing at Stripe keeps a repeat from taking it again.

    An intent is confirmed once and an invoice paid once, so calls about these are not meant; nor is what moves our own money,
    as refunds, transfers and payouts do.
    """
    if path == "/v1/charges":
        return True
    if path == INTENTS:
        return params.get("confirm") not in (None, False)
    if params.get("payment_behavior") == "default_incomplete" or params.get("collection_method") == "send_invoice":
        return False  # Its invoice is made, and paid by a call of its own.
    if path == "/v1/subscriptions":
        return "trial_period_days" not in params and params.get("trial_end") in (None, "now")
    return _UPDATES.fullmatch(path) is not None and any(params.get(name) == now for name, now in _PAID_NOW.items())


_REFUND_REASONS = frozenset({"duplicate", "fraudulent", "requested_by_customer"})
_CANCEL_REASONS = _REFUND_REASONS | {"abandoned"}


def check_named(path: str, params: Mapping[str, Any]) -> None:
    """Refuse what Stripe never takes of a refund, or of the cancel of an intent: no id, or a reason that it does not know.

    Raises:
        Refused: ``operation_refused``.
    """
    if path == "/v1/refunds":
        for name in ("charge", "payment_intent"):
            if name in params:
                check_object_id(params[name], name)
        _check_reason("reason", params, _REFUND_REASONS)
    elif path.startswith(f"{INTENTS}/") and path.endswith("/cancel"):
        _check_reason("cancellation_reason", params, _CANCEL_REASONS)


def _check_reason(name: str, params: Mapping[str, Any], known: frozenset[str]) -> None:
    reason = params.get(name)
    if reason is not None and not (isinstance(reason, str) and reason in known):
        raise Refused("operation_refused", f"{name} is {quoted(reason, 40)}, not one of {', '.join(sorted(known))}")


def object_path(path: str) -> str:
    """Return the path of the object that an action changes."""
    return path.rsplit("/", 1)[0]
