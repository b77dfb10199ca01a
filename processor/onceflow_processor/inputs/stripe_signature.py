"""Trust ``stripe-signature``: Stripe signed these very bytes for an endpoint of ours.

Rule: the age of the signature is not judged.  A record may lie in a topic for weeks; what is too old is told by the event's
own time, and what came before is told by its marker.
"""

from __future__ import annotations

from onceflow_processor.inputs.input_topic import InputTopic
from onceflow_processor.inputs.unwrapped import header_of
from onceflow_processor.records import Headers
from onceflow_producer.refusal import Refusal
from onceflow_producer.signature import matching_endpoint, parse_header
from onceflow_schemas.event_record import Untrusted


def signer_of(value: bytes, headers: Headers, *, given: InputTopic) -> str | Untrusted:
    """Return the id of the endpoint whose secret signed the value."""
    header = header_of(headers, given.signature_header)
    if isinstance(header, Untrusted):
        return header
    if header is None:
        return Untrusted("unauthenticated", f"there is no header {given.signature_header}")
    parsed = parse_header([header])
    if isinstance(parsed, Refusal):
        return Untrusted("unauthenticated", parsed.detail)
    endpoint = matching_endpoint(parsed, value, secrets=given.secrets)
    return endpoint or Untrusted("unauthenticated", "no signature matches a secret of this input and these bytes")
