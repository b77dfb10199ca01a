"""What can be read at Stripe for an event, under which path, and what an answer to it means.

Rule: pure.  A path is made here and nowhere else, from a fixed table or checked letter by letter, so that nothing in an
event can lead a request elsewhere.  An answer that is not surely what was asked for is not used; texts of Stripe are never
copied, since they may hold personal data: codes are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from onceflow_schemas.strict_json import read_strictly

TRIES_MAX = 12
"""After so many the read has failed: about half an hour."""

BACKOFF_SECONDS_FIRST, BACKOFF_SECONDS_MAX = 1.0, 300.0
NOT_PERMITTED_SECONDS = 60.0
"""Between two tries of what the key may not read."""

LIMITED_SECONDS = 1.0
PAGE_LINES, PAGES_MAX = 100, 50
BYTES_MAX = 4 << 20
"""Of all answers of one read together."""

NOT_PERMITTED = "read_not_permitted"
TOO_MANY_LINES = "too_many_lines"

_PATH = re.compile(r"/v[12](/[A-Za-z0-9_\-]{1,255}){1,6}")
_ID = re.compile(r"[A-Za-z0-9_\-]{1,255}")
_CODE = re.compile(r"[a-z0-9_.\-]{1,80}")
_PERMISSION = re.compile(r"\brak_[a-z_]{1,80}\b")

_PATHS: Mapping[str, str] = {
    "account": "/v1/accounts/",
    "charge": "/v1/charges/",
    "checkout.session": "/v1/checkout/sessions/",
    "coupon": "/v1/coupons/",
    "credit_note": "/v1/credit_notes/",
    "customer": "/v1/customers/",
    "dispute": "/v1/disputes/",
    "invoice": "/v1/invoices/",
    "invoiceitem": "/v1/invoiceitems/",
    "mandate": "/v1/mandates/",
    "payment_intent": "/v1/payment_intents/",
    "payment_link": "/v1/payment_links/",
    "payment_method": "/v1/payment_methods/",
    "payout": "/v1/payouts/",
    "plan": "/v1/plans/",
    "price": "/v1/prices/",
    "product": "/v1/products/",
    "promotion_code": "/v1/promotion_codes/",
    "quote": "/v1/quotes/",
    "refund": "/v1/refunds/",
    "review": "/v1/reviews/",
    "setup_intent": "/v1/setup_intents/",
    "subscription": "/v1/subscriptions/",
    "subscription_item": "/v1/subscription_items/",
    "subscription_schedule": "/v1/subscription_schedules/",
    "tax_rate": "/v1/tax_rates/",
    "topup": "/v1/topups/",
    "transfer": "/v1/transfers/",
}
_WITH_LINES = frozenset({"invoice", "credit_note"})


class ReadKind(StrEnum):
    """What is read."""

    OBJECT = "object"
    """The object as it is now."""
    THIN_EVENT = "thin_event"
    """A thin event, and the object that it is about."""
    LINES = "lines"
    """All lines of an object that shows the first ones only."""


@dataclass(frozen=True, slots=True)
class ReadNeed:
    """What must be read before an event can be handled."""

    account: str
    mode: str
    kind: ReadKind
    object_id: str
    path: str
    api_version: str | None


@dataclass(frozen=True, slots=True)
class Answered:
    """What Stripe said.

    Attributes:
        status: of the answer; None without a whole one, and then ``silence`` is the transport's word for it.
        retry_after_seconds: what it asked us to wait.
        limit: ``Stripe-Rate-Limited-Reason``.
    """

    status: int | None
    body: bytes = b""
    silence: str | None = None
    retry_after_seconds: float | None = None
    limit: str | None = None


@dataclass(frozen=True, slots=True)
class Partly:
    """One of several requests is answered; ``path`` is the next one's."""

    path: str


@dataclass(frozen=True, slots=True)
class Whole:
    """The read has ended well.  ``gone``: there is no such object any more.  ``code`` says why something is left out."""

    gone: bool = False
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Later:
    """Nothing is learnt yet.  ``seconds`` None: with growing pauses.  ``counted``: so many of these, and the read has failed."""

    code: str
    detail: str
    seconds: float | None = None
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Failed:
    """Asking again is useless until a person has done something."""

    code: str
    detail: str


Verdict = Partly | Whole | Later | Failed


def object_path(kind: object, id: object) -> str | None:
    """Return where an object of a kind is read; None when nothing of the kind can be."""
    base = _PATHS.get(kind) if isinstance(kind, str) else None
    return f"{base}{id}" if base is not None and isinstance(id, str) and _ID.fullmatch(id) else None


def thin_event_path(event_id: str) -> str | None:
    """Return where a thin event is read; None when its id does not fit in a path."""
    return f"/v2/core/events/{event_id}" if _ID.fullmatch(event_id) else None


def lines_path(subject: Mapping[str, Any]) -> str | None:
    """Return where the lines of an object are read; None when the object has none."""
    own = object_path(subject.get("object"), subject.get("id")) if subject.get("object") in _WITH_LINES else None
    return None if own is None else f"{own}/lines?limit={PAGE_LINES}"


def judge(need: ReadNeed, answered: Answered, *, path: str, parts: int, part_bytes: int) -> Verdict:
    """Decide what an answer means.

    Args:
        need: what is read.
        answered: what came.
        path: what was asked for.
        parts: how many requests of this read were answered before.
        part_bytes: the size of those answers together.
    """
    if answered.status != _OK:
        return _not_there(need, answered, parts=parts)
    document = read_strictly(answered.body)
    found = document.value
    if document.problem is not None or not isinstance(found, dict) or "error" in found:
        return Later("unreadable", f"the answer is no object of Stripe ({document.problem or 'other JSON'})")
    too_large = part_bytes + len(answered.body) > BYTES_MAX
    if need.kind is ReadKind.LINES:
        return _page(found, need, path=path, parts=parts, too_large=too_large)
    if too_large:
        return Failed("too_large", f"the answer has more than {BYTES_MAX} bytes")
    if need.kind is ReadKind.THIN_EVENT:
        return _thin(found, need) if parts == 0 else _object(found, None)
    return _object(found, need.object_id)


def code_of(answered: Answered) -> str | None:
    """Return Stripe's code of a refusal, else the limit that was met, else the kind of error."""
    error = _error(answered.body)
    candidates = (error.get("code"), answered.limit, error.get("type"))
    return next((one for one in candidates if isinstance(one, str) and _CODE.fullmatch(one)), None)


def backoff_seconds(tries: int, *, share: float) -> float:
    """Return how long to wait after so many tries; ``share`` (0 to 1) is drawn by the caller: full jitter."""
    return share * min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_FIRST * 2.0 ** min(tries, TRIES_MAX))


def assembled(kind: ReadKind, bodies: Sequence[bytes]) -> bytes:
    """Return the answers of a read as one document.

    An object is kept as it came.  A thin event becomes ``{"event": ..., "object": ...}``, lines become one list without
    repeats, since a page that moved while it was read shows a line twice.
    """
    if kind is ReadKind.OBJECT:
        return bodies[-1]
    if kind is ReadKind.THIN_EVENT:
        names = ("event", "object")
        return orjson.dumps({name: orjson.Fragment(body) for name, body in zip(names, bodies, strict=False)})
    lines = {line["id"]: line for body in bodies for line in read_strictly(body).value["data"]}
    return orjson.dumps(list(lines.values()))


_OK, _NOT_FOUND, _CONFLICT, _TOO_MANY = 200, 404, 409, 429
_UNAUTHENTICATED, _FORBIDDEN, _FAILED_DEPENDENCY = 401, 403, 424
_MISSING = frozenset({"resource_missing", "not_found"})
"""Codes of a 404 that is about the object; any other one is about the path."""


def _not_there(need: ReadNeed, answered: Answered, *, parts: int) -> Verdict:
    """No 200: told apart by whether time, a person, or nothing can change it."""
    status = answered.status
    if status is None:
        return Later(answered.silence or "unreachable", "no whole answer came")
    code = code_of(answered)
    detail = f"Stripe answered {status}" + (f" ({code})" if code else "")
    if status == _TOO_MANY:
        return Later("limited", detail, answered.retry_after_seconds or LIMITED_SECONDS, counted=False)
    if status in {_UNAUTHENTICATED, _FORBIDDEN}:
        permission = _PERMISSION.search(str(_error(answered.body).get("message")))
        named = f"the key lacks the permission {permission[0]}" if permission else detail
        return Later(NOT_PERMITTED, named, NOT_PERMITTED_SECONDS, counted=False)
    if status == _NOT_FOUND and code in _MISSING:
        if need.kind is ReadKind.THIN_EVENT and parts == 0:
            return Later("no_such_event", "Stripe does not know the event, or not yet")
        return Whole(gone=True)
    if status in {_CONFLICT, _FAILED_DEPENDENCY} or not 400 <= status < 500:  # noqa: PLR2004 - 4xx
        return Later("redirected" if 300 <= status < 400 else "failing", detail)  # noqa: PLR2004 - 3xx
    return Failed("refused", detail)


def _object(found: Mapping[str, Any], id: str | None) -> Verdict:
    if not isinstance(found.get("object"), str) or (id is not None and found.get("id") != id):
        return Later("unreadable", "the answer is another object than was asked for")
    return Whole(gone=found.get("deleted") is True)


def _thin(found: Mapping[str, Any], need: ReadNeed) -> Verdict:
    if found.get("object") != "v2.core.event" or found.get("id") != need.object_id:
        return Later("unreadable", "the answer is another event than was asked for")
    related = found.get("related_object")
    if related is None:
        return Whole()
    url = related.get("url") if isinstance(related, dict) else None
    if not isinstance(url, str) or not _PATH.fullmatch(url):
        return Failed("no_such_path", "the event names its object by what is no path of Stripe")
    return Partly(url)


def _page(found: Mapping[str, Any], need: ReadNeed, *, path: str, parts: int, too_large: bool) -> Verdict:
    data, more = found.get("data"), found.get("has_more")
    if not isinstance(data, list) or not isinstance(more, bool):
        return Later("unreadable", "the answer is no list of Stripe")
    ids = [line.get("id") if isinstance(line, dict) else None for line in data]
    if not all(isinstance(one, str) and _ID.fullmatch(one) for one in ids) or (more and not ids):
        return Later("unreadable", "a page has a line without an id, or says that there is more and is empty")
    if path.endswith(tuple(f"starting_after={one}" for one in ids)):
        return Later("unreadable", "the list repeats itself")
    if too_large or (more and parts + 1 >= PAGES_MAX):
        return Whole(code=TOO_MANY_LINES)
    return Partly(f"{need.path}&starting_after={ids[-1]}") if more else Whole()


def _error(body: bytes) -> Mapping[str, Any]:
    value = read_strictly(body).value
    found = value.get("error") if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}
