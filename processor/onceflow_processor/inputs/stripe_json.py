"""Format ``stripe-json``: the value is the event, as Stripe posts it."""

from __future__ import annotations

from onceflow_processor.inputs.unwrapped import Unwrapped
from onceflow_processor.records import Headers
from onceflow_schemas.event_record import Untrusted
from onceflow_schemas.strict_json import read_strictly


def unwrap(value: bytes, headers: Headers) -> Unwrapped | Untrusted:
    """Return the event; its own faults are told by its envelope."""
    del headers
    return Unwrapped(value, read_strictly(value))
