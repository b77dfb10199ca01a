"""Format ``cloudevents-binary``: attributes in ``ce_`` headers, the value is the event (CloudEvents 1.0, Kafka binding).

Rule: the attributes say that it is a CloudEvent of a version that is known, and nothing else: identity, type and time
are the event's own.
"""

from __future__ import annotations

from onceflow_processor.inputs.unwrapped import Unwrapped, header_of
from onceflow_processor.records import Headers
from onceflow_schemas.event_record import Untrusted
from onceflow_schemas.strict_json import read_strictly

VERSION = b"1.0"
_STRUCTURED = b"application/cloudevents"


def unwrap(value: bytes, headers: Headers) -> Unwrapped | Untrusted:
    """Return the event; its own faults are told by its envelope."""
    version, kind = header_of(headers, "ce_specversion"), header_of(headers, "content-type")
    if isinstance(version, Untrusted):
        return version
    if isinstance(kind, Untrusted):
        return kind
    if kind is not None and kind.lower().startswith(_STRUCTURED):
        return Untrusted("bad_headers", "content-type says structured mode, and the input is cloudevents-binary")
    if version is None:
        return Untrusted("bad_headers", "there is no ce_specversion")
    if version != VERSION:
        return Untrusted("future_version", f"ce_specversion is {version[:20]!r}")
    return Unwrapped(value, read_strictly(value))
