"""Format ``eventbridge``: what Amazon EventBridge makes of Stripe's partner events; ``detail`` is the event.

Rule: only what Stripe's partner source brought is an event: an EventBridge bus carries others' events too.  ``account``
and ``id`` of the wrapping are Amazon's, and are not looked at.
"""

from __future__ import annotations

from onceflow_processor.inputs.unwrapped import Unwrapped, wrapping_of, written_again
from onceflow_processor.records import Headers
from onceflow_schemas.event_record import Untrusted
from onceflow_schemas.strict_json import Document

VERSION = "0"
SOURCE_PREFIX = "aws.partner/stripe.com/"
SHOWN_CHARACTERS_MAX = 20


def unwrap(value: bytes, headers: Headers) -> Unwrapped | Untrusted:
    """Return the event; its own faults are told by its envelope."""
    del headers
    wrapping = wrapping_of(value)
    if isinstance(wrapping, Untrusted):
        return wrapping
    version, source, event = wrapping.get("version"), wrapping.get("source"), wrapping.get("detail")
    if not isinstance(version, str) or not isinstance(source, str) or "detail-type" not in wrapping:
        return Untrusted("not_an_event", "the document has no version, source and detail-type of EventBridge")
    if version != VERSION:
        return Untrusted("future_version", f"the version of the envelope is {version[:SHOWN_CHARACTERS_MAX]!r}")
    if not source.startswith(SOURCE_PREFIX):
        return Untrusted("not_an_event", f"the source does not begin with {SOURCE_PREFIX}")
    if not isinstance(event, dict):
        return Untrusted("not_an_event", "detail is not an object")
    return Unwrapped(written_again(event), Document(event))
