"""Format ``cloudevents-structured``: a JSON document whose ``data`` is the event (CloudEvents 1.0; Azure Event Grid too).

Rule: as in binary mode the attributes give no identity.  ``data_base64`` has the exact bytes, ``data`` is written again.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from onceflow_processor.inputs.unwrapped import Unwrapped, wrapping_of, written_again
from onceflow_processor.records import Headers
from onceflow_schemas.event_record import Untrusted
from onceflow_schemas.strict_json import Document, read_strictly

VERSION = "1.0"
SHOWN_CHARACTERS_MAX = 20


def unwrap(value: bytes, headers: Headers) -> Unwrapped | Untrusted:
    """Return the event; its own faults are told by its envelope."""
    del headers
    wrapping = wrapping_of(value)
    if isinstance(wrapping, Untrusted):
        return wrapping
    version = wrapping.get("specversion")
    if not isinstance(version, str):
        return Untrusted("not_an_event", "the document has no specversion, so it is no CloudEvent")
    if version != VERSION:
        return Untrusted("future_version", f"specversion is {version[:SHOWN_CHARACTERS_MAX]!r}")
    if "data_base64" in wrapping:
        return _decoded(wrapping)
    event = wrapping.get("data")
    if not isinstance(event, dict):
        return Untrusted("not_an_event", "the CloudEvent has no data that is an object")
    return Unwrapped(written_again(event), Document(event))


def _decoded(wrapping: dict[str, Any]) -> Unwrapped | Untrusted:
    text = wrapping["data_base64"]
    if "data" in wrapping:
        return Untrusted("not_an_event", "the CloudEvent has both data and data_base64")
    try:
        body = base64.b64decode(text, validate=True) if isinstance(text, str) else None
    except binascii.Error:
        body = None
    if not body:
        return Untrusted("not_an_event", "data_base64 is not base64")
    return Unwrapped(body, read_strictly(body))
