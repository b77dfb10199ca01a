"""Which records may become events: decoding, attestation, account, mode, age.

Rule: a record that nobody vouches for never touches the inbox, so a forgery cannot pre-empt the real event; one
that is vouched for has an identity and always ends in a state.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from onceflow_processor.inputs.decode import decode
from onceflow_processor.inputs.input_topic import InputTopic
from onceflow_processor.inputs.rendering import digest_of
from onceflow_processor.records import Record
from onceflow_schemas.attestation import AttestationKey
from onceflow_schemas.envelope import Envelope, read_envelope
from onceflow_schemas.event_record import RECONCILER_ENDPOINT, EventRecord, Untrusted, open_event
from onceflow_schemas.failure_course import Course
from onceflow_schemas.identity import Identity
from onceflow_schemas.object_reads import ReadNeed

ORDER_KEY_BYTES_MAX = 512
"""Longer keys than this are no ids, and would not fit into an index."""

_VERSION_SEARCH_BYTES = 512
_API_VERSION = re.compile(rb'"api_version":\s*"([A-Za-z0-9_.\-]{1,40})"')


@dataclass(frozen=True, slots=True)
class Rules:
    """What this deployment takes; a topic that ``inputs`` does not name carries the bridge's own records.

    ``known_from`` is the time of receipt before which a marker may be gone: it never goes back, so it holds also after the
    horizon was raised, and where this host's clock is late.  None where none was ever deleted.
    """

    deployment: str
    accounts: frozenset[str]
    mode: str
    keys: Mapping[str, AttestationKey]
    horizon: timedelta
    inputs: Mapping[str, InputTopic] = field(default_factory=dict)
    known_from: datetime | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an event is parked or goes to quarantine; ``code`` is a failure code.

    ``blocks`` says that the events of its order key wait behind it: its effects are missing, not only its record bad.
    ``wait_seconds`` is what a handler asked for with ``RetryIn``.  ``read`` is what must be read at Stripe before the event can
    be handled: it is parked until that is done.
    """

    code: str
    detail: str
    handler: str | None = None
    traceback: str | None = None
    course: Course = Course.QUARANTINE
    blocks: bool = False
    wait_seconds: float | None = None
    read: ReadNeed | None = None


@dataclass(slots=True)
class Item:
    """One record of a batch and what is known about it; it survives reruns of the batch.

    ``event`` is None for a record that nobody vouches for.  ``fault`` sends it to quarantine.  ``tries`` counts how
    often its handlers failed, ``reruns`` how often they met a fault of the moment.  ``trial`` is a fault that counts only
    if events behind it go well.  ``success_told`` says that the breaker has heard how well it went, or a rerun would tell
    it again.  ``order_key``: events with the same one run in their order, and wait behind one that has to wait.
    ``unwrapped`` is the event's body where the record wraps it, and ``envelope`` what it says, where that had to be read
    to know the identity.  ``parked_as`` is who it is in the table of parked events while it is tried again, and ``attempts``
    counts its tries from there, this one too.
    """

    record: Record
    event: EventRecord | None
    fault: Fault | None = None
    tries: int = 0
    reruns: int = 0
    trial: Fault | None = None
    success_told: bool = False
    order_key: str = ""
    unwrapped: bytes | None = None
    envelope: Envelope | None = None
    parked_as: Identity | None = None
    attempts: int = 0

    @property
    def body(self) -> bytes:
        """The event's JSON, which is the record's value where nothing wraps it; empty when there is none."""
        return self.unwrapped if self.unwrapped is not None else self.record.value or b""

    def take_envelope(self) -> Envelope:
        """Return what the body says, read anew unless this is the first time: a handler may change what it is given."""
        envelope, self.envelope = self.envelope, None
        return envelope if envelope is not None else read_envelope(self.body)


def admit(record: Record, *, rules: Rules, now: datetime) -> Item:
    """Decide what a record is; never raises.

    Args:
        record: as it came from Kafka.
        rules: what this deployment takes.
        now: the time against which the horizon counts, aware.
    """
    if not record.value:
        return Item(record, None, Fault("empty_record", "the record has no value"))
    given = rules.inputs.get(record.partition.topic)
    if given is not None and given.format != "onceflow":
        return _admit_foreign(record, given=given, rules=rules, now=now)
    opened = open_event(
        topic=record.partition.topic,
        value=record.value,
        headers=record.headers,
        deployment=rules.deployment,
        keys=rules.keys,
    )
    if isinstance(opened, Untrusted):
        return Item(record, None, Fault(opened.code, opened.detail))
    if record.key is None or not record.key.startswith(f"{opened.identity.account}/".encode()):
        return Item(record, None, Fault("bad_key", "the record has no key of its account"))
    if given is not None and _is_foreign_account(opened, given):
        return Item(record, None, _foreign_account(opened))
    if opened.endpoint == RECONCILER_ENDPOINT:
        # Its bytes were written from a list of Stripe: what the webhook brings is the same event with other bytes.
        opened = opened._replace(body_sha256=digest_of(record.value))
    return Item(record, opened, _refusal(opened, rules=rules, now=now), order_key=order_key_of(record.key))


def _admit_foreign(record: Record, *, given: InputTopic, rules: Rules, now: datetime) -> Item:
    decoded = decode(record, given=given, now=now)
    if isinstance(decoded, Untrusted):
        return Item(record, None, Fault(decoded.code, decoded.detail))
    event = decoded.event
    if _is_foreign_account(event, given):
        return Item(record, None, _foreign_account(event))
    return Item(
        record,
        event,
        _refusal(event, rules=rules, now=now),
        order_key=order_key_of(decoded.order_key.encode()),
        unwrapped=None if decoded.body is record.value else decoded.body,
        envelope=decoded.envelope,
    )


def _is_foreign_account(event: EventRecord, given: InputTopic) -> bool:
    return given.accounts is not None and event.identity.account not in given.accounts


def _foreign_account(event: EventRecord) -> Fault:
    # Without its marker: whoever may write one account's topic must not pre-empt another's events.
    return Fault("foreign_account", f"this topic may not carry events of {event.identity.account}")


def order_key_of(key: bytes) -> str:
    """Return a record's key as the text that keeps events in order; a digest of one that is too long, or no text."""
    if len(key) <= ORDER_KEY_BYTES_MAX and b"\x00" not in key:
        try:
            return key.decode()
        except UnicodeDecodeError:
            pass
    return "sha256:" + hashlib.sha256(key).hexdigest()


def _refusal(event: EventRecord, *, rules: Rules, now: datetime) -> Fault | None:
    if event.identity.account not in rules.accounts:
        return Fault("unknown_account", f"{event.identity.account} is not an account of this deployment")
    if event.identity.mode != rules.mode:
        return Fault("other_mode", f"a {event.identity.mode} event at a {rules.mode} deployment")
    if event.received_at < now - rules.horizon:
        # Of foreign topics the event's own time is all that there is.
        told = "received" if event.trust == "attested" else "created"
        return Fault("too_old", f"{told} at {event.received_at.isoformat()}, before the horizon")
    if rules.known_from is not None and event.received_at < rules.known_from:
        return Fault("too_old", f"received at {event.received_at.isoformat()}, from when markers are deleted already")
    return None


def stranger(record: Record, *, event: EventRecord, envelope: Envelope) -> Fault | None:
    """Return why an attested record cannot be as the bridge wrote it: its key or its subject, which nobody attests.

    Its marker must stay free for the real one: somebody copied it under another key, or names an object whose order
    and reads it would decide.
    """
    if event.trust != "attested":
        return None
    if not key_fits(record.key, account=event.identity.account, envelope=envelope):
        return Fault("bad_key", "the record's key is not the account and the object")
    if event.object_id != envelope.object_id:
        return Fault("bad_headers", "ce_subject is not the object of the event")
    return None


def key_fits(key: bytes | None, *, account: str, envelope: Envelope) -> bool:
    """Tell whether a record's key can be the bridge's for this event.

    Which object's order matters is the bridge's choice and may change with a release, so the id of any object that the
    event's object names is accepted, not only the one that this release would choose.
    """
    given = (key or b"").decode("utf-8", "replace").removeprefix(f"{account}/")
    if given in (envelope.order_id, envelope.object_id, envelope.event_id):
        return True
    subject = ((envelope.body or {}).get("data") or {}).get("object") or {}
    named = (value.get("id") if isinstance(value, dict) else value for value in subject.values())
    return given in {value for value in named if isinstance(value, str)}


def glimpse_api_version(body: bytes) -> str | None:
    """Return the API version when it stands near the start of the body, without parsing it.

    It only tells whether two renderings of one event may differ, so a miss costs an alarm and nothing else.
    """
    found = _API_VERSION.search(body, 0, _VERSION_SEARCH_BYTES)
    return None if found is None else found[1].decode("ascii")
