"""A record of a foreign topic to an event, or to the reason why it is none.

Rule: the identity comes strictly from the body: where it is missing, doubled or not in its form the record is undecodable,
is kept under its position and claims no marker.  Never raises.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from onceflow_processor.inputs import cloudevents_binary, cloudevents_structured, eventbridge, stripe_json
from onceflow_processor.inputs.input_topic import Format, InputTopic
from onceflow_processor.inputs.rendering import rendering_digest
from onceflow_processor.inputs.stripe_signature import signer_of
from onceflow_processor.inputs.unwrapped import Unwrapped
from onceflow_processor.records import Headers, Record
from onceflow_schemas.envelope import THIN_KIND, Envelope, envelope_of
from onceflow_schemas.event_record import HEADERS_MAX, EventRecord, Untrusted
from onceflow_schemas.identity import Identity
from onceflow_schemas.times import format_time

ORDER_KEY_CHARACTERS_MAX = 255
"""A longer record key stands for itself by its hash, since an index holds it."""

_UNWRAP: Mapping[Format, Callable[[bytes, Headers], Unwrapped | Untrusted]] = {
    "stripe-json": stripe_json.unwrap,
    "cloudevents-structured": cloudevents_structured.unwrap,
    "cloudevents-binary": cloudevents_binary.unwrap,
    "eventbridge": eventbridge.unwrap,
}
_IDENTITY_KEYS = frozenset({"id", "object", "account", "context", "livemode"})


class Decoded(NamedTuple):
    """An event of a foreign topic: ``body`` are its bytes, ``envelope`` what they say."""

    event: EventRecord
    body: bytes
    envelope: Envelope
    order_key: str


def decode(record: Record, *, given: InputTopic, now: datetime) -> Decoded | Untrusted:
    """Check and read a record.

    Args:
        record: with a value.
        given: what its topic carries.
        now: stands in for the time of an event that has none, which then goes to quarantine.
    """
    value = record.value or b""
    if len(record.headers) > HEADERS_MAX:
        return Untrusted("too_many_headers", f"{len(record.headers)} headers")
    endpoint: str | Untrusted = ""
    if given.trust == "stripe-signature":
        endpoint = signer_of(value, record.headers, given=given)
    if isinstance(endpoint, Untrusted):
        return endpoint
    unwrapped = _UNWRAP[given.format](value, record.headers)
    if isinstance(unwrapped, Untrusted):
        return unwrapped
    envelope = envelope_of(unwrapped.document, unwrapped.body)
    identity = _identity(unwrapped, envelope, default_account=given.default_account)
    if isinstance(identity, Untrusted):
        return identity
    signed = given.trust == "stripe-signature"
    digest = hashlib.sha256(value).digest() if signed else rendering_digest(unwrapped.document.value)
    received_at = envelope.created or now
    event = EventRecord(
        identity=identity,
        type=envelope.type,
        object_id=envelope.object_id,
        created_text=None if envelope.created is None else format_time(envelope.created),
        received_at_text=format_time(received_at),
        received_at=received_at,
        endpoint=endpoint,
        source="bus",
        traceparent=None,
        body_sha256=digest,
        trust=given.trust,
    )
    key = _record_key(record.key) if given.key == "record" and record.key else envelope.order_id or identity.event_id
    return Decoded(event, unwrapped.body, envelope, f"{identity.account}/{key}")


def _identity(unwrapped: Unwrapped, envelope: Envelope, *, default_account: str) -> Identity | Untrusted:
    body: dict[str, Any] | None = envelope.body
    if body is None:
        return Untrusted(envelope.problem or "not_an_event", envelope.detail)
    doubled = _IDENTITY_KEYS & unwrapped.document.outermost_doubled
    if doubled:
        return Untrusted("duplicate_key", f"the key {min(doubled)} stands twice")
    if body.get("object") not in ("event", THIN_KIND) or envelope.problem == "not_an_event":
        return Untrusted("not_an_event", "the record is JSON, but not an event with data.object")
    if body.get("id") != envelope.event_id:
        return Untrusted("bad_event_id", "the id is missing or not evt_ and letters, digits, underscores")
    if envelope.livemode is None:
        return Untrusted("bad_livemode", "livemode is not true or false")
    if envelope.account is None and envelope.names_account:
        return Untrusted("bad_account", "the account is not usable")
    return Identity(envelope.account or default_account, "live" if envelope.livemode else "test", envelope.event_id)


def _record_key(key: bytes) -> str:
    text = key.decode("utf-8", "backslashreplace").replace("\x00", "\\x00")
    return text if len(text) <= ORDER_KEY_CHARACTERS_MAX else "sha256:" + hashlib.sha256(key).hexdigest()
