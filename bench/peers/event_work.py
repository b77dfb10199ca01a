"""What every peer does with an event: the same small work as the handlers of the bench."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson

OUTCOME_TYPE = "bench.seen"
_QUERY_NAME = re.compile(r"^-- name: ([a-z][a-z0-9_]*)$", re.MULTILINE)
_TEXT = (Path(__file__).parent.parent / "sql" / "peers.sql").read_text("utf-8")
_PARTS = _QUERY_NAME.split(_TEXT)
SQL = {name: text.strip().encode() for name, text in zip(_PARTS[1::2], _PARTS[2::2], strict=True)}


def row_of(event: dict[str, Any]) -> tuple[str, str, str, int]:
    """Return the event's row: id, type, object id, created."""
    return event["id"], event["type"], event["data"]["object"].get("id", ""), event["created"]


def outcome_of(event: dict[str, Any]) -> tuple[str, str, bytes, str]:
    """Return the outcome's row after its id: type, key, value, event id."""
    found = event["data"]["object"]
    data = {
        "amount": found.get("amount"),
        "currency": found.get("currency"),
        "customer": found.get("customer"),
        "event": event["id"],
        "object": found.get("object"),
    }
    value = orjson.dumps(data, option=orjson.OPT_SORT_KEYS)
    return OUTCOME_TYPE, str(found.get("id") or event["id"]), value, event["id"]
