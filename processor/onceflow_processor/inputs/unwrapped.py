"""An event as it was taken out of its wrapping.

Rule: whatever stands around an event is read as strictly as the event; no identity is ever taken from the wrapping.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import orjson

from onceflow_processor.records import Headers
from onceflow_schemas.event_record import Untrusted
from onceflow_schemas.strict_json import Document, read_strictly


class Unwrapped(NamedTuple):
    """``body`` is the event's JSON and ``document`` what it says."""

    body: bytes
    document: Document


def written_again(value: Any) -> bytes:
    """Return the JSON of an event that stood inside another document: same order of keys, no white space."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        # An integer of more than 64 bits; the standard library writes it as it was read.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def wrapping_of(value: bytes) -> dict[str, Any] | Untrusted:
    """Read the document around an event.

    Any fault in it makes the record undecodable: whether a doubled key stands in the wrapping or in the event is not told
    apart, and nothing may depend on which of two readings is right.
    """
    document = read_strictly(value)
    if document.problem is not None:
        return Untrusted(document.problem, document.detail)
    if not isinstance(document.value, dict):
        return Untrusted("not_an_event", "the record is not a JSON object")
    return document.value


def header_of(headers: Headers, name: str) -> bytes | Untrusted | None:
    """Return the value of the only header of that name, None when there is none or it has no value.

    Args:
        headers: of the record.
        name: compared without regard to case.
    """
    wanted = name.lower()
    found = [value for one, value in headers if one.lower() == wanted]
    if len(found) > 1:
        return Untrusted("bad_headers", f"the header {name} stands there {len(found)} times")
    return found[0] if found else None
