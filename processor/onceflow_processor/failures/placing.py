"""Where a quarantined event goes back to.  Pure.

Rule: the key that it blocked, else the key that its record has by the policy of our own topics.  An event whose record has
no key of its account waits for itself alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def order_key_of(row: Mapping[str, Any]) -> str:
    """Return the order key of a row of quarantine with an identity."""
    if row["order_key"] is not None:
        return str(row["order_key"])
    account = row["account"]
    try:
        key = (row["key"] or b"").decode("utf-8")
    except UnicodeDecodeError:
        key = ""
    if key.startswith(f"{account}/") and "\0" not in key:
        return key
    return f"{account}/{row['event_id']}"
