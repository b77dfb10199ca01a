"""Amounts and currencies as Stripe writes them: integers of minor units and a lower-case code.

Rule: money is never a float and never outside 64 bits.  An event that breaks this is kept for a person,
because every way of reading it could book another sum.
"""

from __future__ import annotations

import re
from typing import Any

AMOUNT_FIELDS = (
    "amount",
    "amount_capturable",
    "amount_captured",
    "amount_due",
    "amount_paid",
    "amount_received",
    "amount_refunded",
    "amount_remaining",
    "amount_subtotal",
    "amount_total",
    "application_fee_amount",
    "subtotal",
    "total",
)
"""Fields that hold a sum in minor units (names from Stripe's API reference)."""

NEVER_NEGATIVE = frozenset({"charge", "payment_intent", "refund", "dispute", "checkout.session"})
"""Kinds whose sums cannot be below zero; payouts, invoice items and credit notes may be."""

AMOUNT_MAX = 2**63 - 1
_CURRENCY_PATTERN = re.compile(r"[a-z]{3,5}")


def money_problem(subject: dict[str, Any]) -> tuple[str, str] | None:
    """Return (failure code, detail) of the first fault in the money fields of an object, None when sound."""
    kind = subject.get("object")
    lowest = 0 if isinstance(kind, str) and kind in NEVER_NEGATIVE else -AMOUNT_MAX
    for name in AMOUNT_FIELDS:
        value = subject.get(name)
        if value is None:
            continue
        if type(value) is not int:
            return "bad_amount", f"{name} is not an integer"
        if not lowest <= value <= AMOUNT_MAX:
            return "bad_amount", f"{name} is out of range"
    currency = subject.get("currency")
    if currency is not None and not (isinstance(currency, str) and _CURRENCY_PATTERN.fullmatch(currency)):
        return "bad_currency", "the currency is not a lower-case code"
    return None
