"""Bodies as Stripe sends them, and generated ones: what the tests of this folder read.

``RUBY`` is Stripe's own spelling, seen in bodies of real accounts: two spaces, and an empty object or list that ends on a
line of its own.
"""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

CASES = settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
"""No deadline: the machine may be busy.  The number of examples is what a quick run affords."""

EVENT: dict[str, Any] = {
    "id": "evt_1B",
    "object": "event",
    "account": "acct_1A",
    "api_version": "2026-10-28.endive",
    "created": 1_767_225_600,
    "data": {
        "object": {
            "id": "pi_1",
            "object": "payment_intent",
            "amount": 1200,
            "currency": "usd",
            "metadata": {},
            "charges": {"object": "list", "data": []},
        }
    },
    "livemode": False,
    "pending_webhooks": 1,
    "request": {"id": None, "idempotency_key": None},
    "type": "payment_intent.succeeded",
}


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def pretty(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode()


def spaced(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def escaped(value: Any) -> bytes:
    return json.dumps(value).encode()


def ruby(value: Any) -> bytes:
    """Pretty, with empty objects and lists over two lines; only for values whose texts hold no brackets."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return re.sub(r"(?<=[{\[])(?=[}\]])", "\n\n      ", text).encode()


FORMS = (compact, pretty, spaced, escaped, ruby)


def event_with(subject: dict[str, Any] | None = None, **changes: Any) -> bytes:
    """The body of an event whose fields are changed; a change to ``...`` takes the field away."""
    event = {**EVENT, **changes}
    if subject is not None:
        event["data"] = {"object": subject}
    return compact({name: value for name, value in event.items() if value is not ...})


def json_values(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Plain JSON with these texts; numbers of every size, no NaN."""
    scalars = (
        st.none()
        | st.booleans()
        | st.integers(-(2**70), 2**70)
        | st.floats(allow_nan=False, allow_infinity=False)
        | texts
    )
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
        max_leaves=12,
    )
