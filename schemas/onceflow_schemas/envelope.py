"""The envelope of a Stripe event: what the bridge and the processor read from a body.

Rule: reading never fails.  A strange body gets a problem code and still an identity, because a validly
signed body must be kept and counted whatever it says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from onceflow_schemas.identity import ACCOUNT_PATTERN, EVENT_ID_PATTERN, body_event_id
from onceflow_schemas.money import money_problem
from onceflow_schemas.strict_json import Document, read_strictly

TYPE_PATTERN = re.compile(r"[A-Za-z0-9_.\[\]]{1,200}")
OBJECT_ID_PATTERN = re.compile(r"[A-Za-z0-9_.:\-]{1,255}")
CREATED_SECONDS_MAX = 253_402_300_799
"""The last second of the year 9999, the last that a datetime can hold."""

UNKNOWN_TYPE = "unknown"
THIN_KIND = "v2.core.event"
"""What a thin event calls itself: it names its object and does not hold it."""

_ORDER_FIELDS: dict[str, tuple[str, ...]] = {
    "charge": ("payment_intent",),
    "refund": ("payment_intent", "charge"),
    "dispute": ("payment_intent", "charge"),
    "checkout.session": ("payment_intent", "subscription"),
    "subscription_item": ("subscription",),
    "subscription_schedule": ("subscription",),
    "credit_note": ("invoice",),
}
"""For each kind of object the fields that name the object whose order matters, best first."""


class Envelope(NamedTuple):
    """What a body says about itself.

    ``event_id`` is ``evt_...`` or ``sha256:<hex>``; ``type`` is ``unknown`` when unusable; ``account``,
    ``livemode`` and ``created`` are None when the body does not say them usably; ``order_id`` is the id of the
    object whose order matters; ``problem`` is a failure code, None when the event can be handled.
    ``body`` is the parsed event, with NUL and lone surrogates replaced (``replaced``).  ``names_account``: the body says an
    account, usable or not.
    """

    event_id: str
    type: str
    created: datetime | None
    livemode: bool | None
    account: str | None
    api_version: str | None
    object_id: str
    order_id: str
    problem: str | None
    detail: str
    replaced: bool
    body: dict[str, Any] | None
    names_account: bool = False

    @property
    def is_thin(self) -> bool:
        """True for an event that only names its object: ``object_id`` is that of ``related_object``, which has to be read."""
        return self.body is not None and self.body.get("object") == THIN_KIND


@dataclass(slots=True)
class _Faults:
    problem: str | None
    detail: str

    def note(self, problem: str, detail: str) -> None:
        if self.problem is None:
            self.problem, self.detail = problem, detail


def read_envelope(body: bytes) -> Envelope:
    """Read the envelope of a body; never raises."""
    return envelope_of(read_strictly(body), body)


def envelope_of(document: Document, body: bytes) -> Envelope:
    """Read the envelope of a body that is parsed already.

    Args:
        document: ``read_strictly(body)``.
        body: without a usable id in it, the id is made of these bytes.
    """
    faults = _Faults(document.problem, document.detail)
    event = _outermost(document)
    if not event:
        faults.note("not_an_event", "the body is not an object")
    event_id = _event_id(event, body, faults)
    kind = event.get("object")
    thin = kind == THIN_KIND
    if thin:
        faults.note("unsupported_kind", "the body is a thin event")
    elif kind != "event" or not isinstance(event.get("data"), dict):
        faults.note("not_an_event", "the body is not an event with data")
    subject = _subject(event, thin=thin)
    if not subject and not thin:
        faults.note("not_an_event", "the event has no data.object")
    event_type = _matching(event.get("type"), TYPE_PATTERN)
    if event_type is None:
        faults.note("bad_type", "the type is missing or not usable")
    livemode = event.get("livemode")
    if not isinstance(livemode, bool):
        faults.note("bad_livemode", "livemode is not true or false")
    created = _created(event.get("created"), thin=thin)
    if created is None:
        faults.note("bad_created", "created is missing or out of range")
    named = _named_account(event, thin=thin)
    account = _matching(named, ACCOUNT_PATTERN)
    if account is None and named is not None:
        faults.note("bad_account", "the account is not usable")
    if faults.problem is None and (money := money_problem(subject)) is not None:
        faults.note(*money)
    object_id = _matching(subject.get("id"), OBJECT_ID_PATTERN) or ""
    version = event.get("api_version")
    return Envelope(
        event_id=event_id,
        type=event_type or UNKNOWN_TYPE,
        created=created,
        livemode=livemode if isinstance(livemode, bool) else None,
        account=account,
        api_version=version[:60] if isinstance(version, str) else None,
        object_id=object_id,
        order_id=_order_id(subject) or object_id,
        problem=faults.problem,
        detail=faults.detail,
        replaced=document.replaced,
        body=event or None,
        names_account=named is not None,
    )


def _named_account(event: dict[str, Any], *, thin: bool) -> object:
    """Return the account as the event says it: a thin one says it as the last part of its context."""
    named = event.get("account")
    if named is None and thin:
        named = event.get("context")
        return named.rpartition("/")[2] if isinstance(named, str) else named
    return named


def _outermost(document: Document) -> dict[str, Any]:
    """Return the outermost object without the keys that stand twice in it: nothing may depend on those."""
    if not isinstance(document.value, dict):
        return {}
    if not document.outermost_doubled:
        return document.value
    return {key: value for key, value in document.value.items() if key not in document.outermost_doubled}


def _event_id(event: dict[str, Any], body: bytes, faults: _Faults) -> str:
    found = _matching(event.get("id"), EVENT_ID_PATTERN)
    if found is not None:
        return found
    if event:
        faults.note("bad_event_id", "the id is missing or not evt_ and letters, digits, underscores")
    return body_event_id(body)


def _matching(value: object, pattern: re.Pattern[str]) -> str | None:
    return value if isinstance(value, str) and pattern.fullmatch(value) else None


def _subject(event: dict[str, Any], *, thin: bool) -> dict[str, Any]:
    if thin:
        found = event.get("related_object")
    else:
        data = event.get("data")
        found = data.get("object") if isinstance(data, dict) else None
    return found if isinstance(found, dict) else {}


def _created(value: object, *, thin: bool) -> datetime | None:
    if thin and isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
            return moment.astimezone(UTC) if moment.tzinfo else None
        except (ValueError, OverflowError):  # The first and the last hours of the calendar have no time in UTC.
            return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= CREATED_SECONDS_MAX:
        return None
    return datetime.fromtimestamp(value, UTC)


def _order_id(subject: dict[str, Any]) -> str | None:
    kind = subject.get("object")
    for name in _ORDER_FIELDS.get(kind, ()) if isinstance(kind, str) else ():
        value = subject.get(name)
        # An expanded field holds the whole object; its id is what matters.
        if isinstance(value, dict):
            value = value.get("id")
        if (found := _matching(value, OBJECT_ID_PATTERN)) is not None:
            return found
    return None
