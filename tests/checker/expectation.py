"""What should come of an event, by hand: the shipped example's promise, not its code.

Rule: nothing here is computed by the product.  The table below is what docs and issue promise for
``onceflow.examples.payments``; if the example changes, this file must be changed by a person.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from tests.checker.snapshot import Wanted

EVENT_ID = re.compile(r"evt_[A-Za-z0-9_]{1,250}")
DEPTH_MAX = 64

OUTCOME_TYPES = {
    "payment_intent.succeeded": "payment.succeeded",
    "payment_intent.payment_failed": "payment.failed",
    "charge.refunded": "charge.refunded",
    "invoice.paid": "invoice.paid",
    "customer.subscription.created": "subscription.changed",
    "customer.subscription.updated": "subscription.changed",
    "customer.subscription.deleted": "subscription.changed",
    "charge.dispute.created": "dispute.changed",
    "charge.dispute.updated": "dispute.changed",
    "charge.dispute.closed": "dispute.changed",
    "charge.dispute.funds_withdrawn": "dispute.changed",
    "charge.dispute.funds_reinstated": "dispute.changed",
}
"""The only types with a handler; every other type is ignored."""

ONCE = {"payment_intent.succeeded": "payment", "invoice.paid": "invoice-paid"}
"""The types whose effect may happen once per object, with the namespace of the fact."""

CHECKED_NUMBERS = ("amount_refunded",)
"""Numbers of an object that must come out of the outcome topic unchanged."""


def wanted_outcome(event_type: str, subject: dict[str, Any]) -> Wanted | None:
    """Return the outcome that an event of this type about this object should have, None for an unhandled type."""
    outcome_type = OUTCOME_TYPES.get(event_type)
    if outcome_type is None:
        return None
    data: tuple[tuple[str, int], ...] = ()
    if event_type == "charge.refunded":
        data = (("amount_refunded", subject.get("amount_refunded", -1)),)
    return Wanted(outcome_type, str(subject.get("id")), once=event_type in ONCE, data=data)


def read_body(body: bytes) -> tuple[tuple[str | None, str | None, str], str | None, dict[str, Any]]:
    """Return ((account, mode, event id), type, object) as the checker reads a body; nothing raises.

    A body that is no JSON object, or nests too deep for the standard library, has the id of its hash.
    """
    by_hash = "sha256:" + hashlib.sha256(body).hexdigest()
    try:
        event = json.loads(body) if _depth(body) <= DEPTH_MAX else None
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        return (None, None, by_hash), None, {}
    event_id, livemode, kind = event.get("id"), event.get("livemode"), event.get("type")
    usable = event_id if isinstance(event_id, str) and EVENT_ID.fullmatch(event_id) else by_hash
    mode = {True: "live", False: "test"}.get(livemode) if isinstance(livemode, bool) else None
    account = event.get("account")
    data = event.get("data")
    subject = data.get("object") if isinstance(data, dict) else None
    return (
        (account if isinstance(account, str) else None, mode, usable),
        kind if isinstance(kind, str) else None,
        subject if isinstance(subject, dict) else {},
    )


def _depth(body: bytes) -> int:
    """Return an upper bound of the nesting; brackets inside strings count too, which real events never carry by dozens."""
    depth = deepest = 0
    for mark in re.findall(rb"[\[{\]}]", body):
        depth += 1 if mark in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest
