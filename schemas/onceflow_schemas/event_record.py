"""One event as a Kafka record: the exact bytes that Stripe signed, and headers that say what they are.

Rule: the value is never re-encoded, and the identity in attested headers is the identity.  Header names and forms
are fixed in docs/reference/records.md; CloudEvents' binary mode for Kafka gives the ``ce_`` names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from onceflow_schemas.attestation import AttestationKey, Attested, sign, verify
from onceflow_schemas.envelope import Envelope
from onceflow_schemas.identity import Identity
from onceflow_schemas.times import format_time, parse_time

Source = Literal["webhook", "reconciler"]

TYPE_PREFIX = "com.stripe."
RECONCILER_ENDPOINT = "stripe:events"
"""The endpoint of records that were made of Stripe's event list; no webhook can have it, since endpoint ids have no colon."""

CONTENT_TYPE = b"application/json"
HEADERS_MAX = 64
HEADER_BYTES_MAX = 2048

_REQUIRED = (
    "ce_id",
    "ce_source",
    "ce_type",
    "onceflow_received_at",
    "onceflow_endpoint",
    "onceflow_source",
    "onceflow_attestation",
)
_OPTIONAL = ("ce_specversion", "ce_subject", "ce_time", "content-type", "traceparent")
_REQUIRED_SET = frozenset(_REQUIRED)
_KNOWN = frozenset(_REQUIRED + _OPTIONAL)
_SOURCE_PARTS = 4


class OutgoingRecord(NamedTuple):
    """A record ready for the producer."""

    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]
    identity: Identity


class EventRecord(NamedTuple):
    """A record that somebody vouches for.

    ``created_text`` (None when the body says no usable time) and ``received_at_text`` are the times as they stand in
    the headers, in the form that PostgreSQL reads too.  ``body_sha256`` is the digest of the record's value, 32 bytes.
    ``trust`` says who vouches for it: ``attested`` here, another word for records of foreign topics.
    """

    identity: Identity
    type: str
    object_id: str
    created_text: str | None
    received_at_text: str
    received_at: datetime
    endpoint: str
    source: str
    traceparent: str | None
    body_sha256: bytes
    trust: str = "attested"


class Untrusted(NamedTuple):
    """A record that nobody vouches for; ``code`` is a failure code."""

    code: str
    detail: str


def build_event(
    body: bytes,
    *,
    envelope: Envelope,
    default_account: str,
    default_mode: str,
    received_at: datetime,
    endpoint: str,
    source: Source,
    deployment: str,
    topic: str,
    key: AttestationKey,
    traceparent: str | None,
) -> OutgoingRecord:
    """Make the record of a verified body.

    Args:
        body: the exact bytes that were signed.
        envelope: ``read_envelope(body)``.
        default_account: stands in when the body names no account (an event of the own account).
        default_mode: stands in when livemode is unusable; such a body is quarantined by the processor.
        received_at: when it came, aware.
        endpoint: id of the endpoint secret that verified it.
        source: who brings it.
        deployment: id of the deployment that the attestation is for.
        topic: the topic that the attestation is for.
        key: the attestation key to sign with.
        traceparent: W3C trace context, None when there is none.
    """
    identity = Identity(
        envelope.account or default_account,
        default_mode if envelope.livemode is None else ("live" if envelope.livemode else "test"),
        envelope.event_id,
    )
    fields = Attested(
        deployment=deployment,
        topic=topic,
        account=identity.account,
        mode=identity.mode,
        event_id=identity.event_id,
        type=envelope.type,
        created="" if envelope.created is None else format_time(envelope.created),
        received_at=format_time(received_at),
        endpoint=endpoint,
    )
    headers = [
        ("ce_specversion", "1.0"),
        ("ce_id", identity.event_id),
        ("ce_source", f"urn:stripe:{identity.account}:{identity.mode}"),
        ("ce_type", TYPE_PREFIX + envelope.type),
        ("ce_subject", envelope.object_id),
        ("ce_time", fields.created),
        ("content-type", "application/json"),
        ("traceparent", traceparent or ""),
        ("onceflow_received_at", fields.received_at),
        ("onceflow_endpoint", endpoint),
        ("onceflow_source", source),
        ("onceflow_attestation", sign(fields, body, key=key)),
    ]
    order = envelope.order_id or identity.event_id
    return OutgoingRecord(
        key=f"{identity.account}/{order}".encode(),
        value=body,
        headers=[(name, text.encode("ascii")) for name, text in headers if text],
        identity=identity,
    )


def open_event(
    *,
    topic: str,
    value: bytes,
    headers: Sequence[tuple[str, bytes | None]],
    deployment: str,
    keys: Mapping[str, AttestationKey],
) -> EventRecord | Untrusted:
    """Check a record's headers and attestation.

    Args:
        topic: where it was read; the attestation must be for this topic.
        value: the record's value.
        headers: the record's headers in order; a header of ours that stands twice makes the record untrusted.
        deployment: the attestation must be for this deployment.
        keys: attestation keys by id.
    """
    if len(headers) > HEADERS_MAX:
        return Untrusted("too_many_headers", f"{len(headers)} headers")
    texts: dict[str, str] = {}
    for name, raw in headers:
        if name not in _KNOWN:
            continue
        if name in texts or raw is None or len(raw) > HEADER_BYTES_MAX or not raw.isascii():
            return Untrusted("bad_headers", f"{name} is doubled, null, too long or not ASCII")
        texts[name] = raw.decode("ascii")
    if not "".join(texts.values()).isprintable():
        name = next(name for name, text in texts.items() if not text.isprintable())
        return Untrusted("bad_headers", f"{name} holds control characters")
    if "onceflow_attestation" not in texts:
        return Untrusted("unauthenticated", "there is no attestation")
    if not texts.keys() >= _REQUIRED_SET:
        missing = next(name for name in _REQUIRED if name not in texts)
        return Untrusted("bad_headers", f"{missing} is missing")
    return _open_texts(texts, topic=topic, value=value, deployment=deployment, keys=keys)


def _open_texts(
    texts: Mapping[str, str], *, topic: str, value: bytes, deployment: str, keys: Mapping[str, AttestationKey]
) -> EventRecord | Untrusted:
    source = texts["ce_source"].split(":")
    if len(source) != _SOURCE_PARTS or source[:2] != ["urn", "stripe"]:
        return Untrusted("bad_headers", "ce_source is not urn:stripe:<account>:<mode>")
    if not texts["ce_type"].startswith(TYPE_PREFIX):
        return Untrusted("bad_headers", f"ce_type does not begin with {TYPE_PREFIX}")
    created_text = texts.get("ce_time", "")
    try:
        received_at = parse_time(texts["onceflow_received_at"])
        if created_text:
            parse_time(created_text)
    except ValueError as error:
        return Untrusted("bad_headers", str(error))
    fields = Attested(
        deployment=deployment,
        topic=topic,
        account=source[2],
        mode=source[3],
        event_id=texts["ce_id"],
        type=texts["ce_type"][len(TYPE_PREFIX) :],
        created=created_text,
        received_at=texts["onceflow_received_at"],
        endpoint=texts["onceflow_endpoint"],
    )
    body_sha256 = hashlib.sha256(value).digest()
    code = verify(
        texts["onceflow_attestation"], fields=fields, body_sha256=body_sha256, received_at=received_at, keys=keys
    )
    if code is not None:
        return Untrusted(code, "the attestation does not hold for this deployment, topic and body")
    return EventRecord(
        identity=Identity(fields.account, fields.mode, fields.event_id),
        type=fields.type,
        object_id=texts.get("ce_subject", ""),
        created_text=created_text or None,
        received_at_text=fields.received_at,
        received_at=received_at,
        endpoint=fields.endpoint,
        source=texts["onceflow_source"],
        traceparent=texts.get("traceparent"),
        body_sha256=body_sha256,
    )
