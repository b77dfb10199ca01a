"""Where the API versions that we know keep the same thing, in one form for handlers.

Rule: a field is read where it is, whatever version the event says it has, and what is not there is never made up: a reading
says where it was found, or why there is no value.  The object is not changed.

Known are the versions up to ``api_versions.NEWEST_KNOWN``.  What moved: the subscription of an invoice into ``parent`` and the
period of a subscription into its items (2025-03-31), the charge and the intent of an invoice into ``payments`` (2025-03-31),
the charges of an intent into ``latest_charge`` (2022-11-15).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

Problem = Literal["missing", "null", "differs", "truncated", "unreadable"]
"""No known place is there; it is there and says null; several places say different things; there are more places than the
object shows; it has an unknown form."""

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Reading(Generic[Value]):
    """What was read.

    Attributes:
        value: None when there is none; ``problem`` says why.
        path: where it was read, such as ``parent.subscription_details.subscription``; None when no known place is there.
        problem: None when there is a value.
    """

    value: Value | None
    path: str | None
    problem: Problem | None = None


class Period(NamedTuple):
    """A period of a subscription, in unix seconds."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines that an object shows.

    Attributes:
        items: the lines.
        total_count: how many there are; None when the object does not say.
        is_truncated: there are more than these, so no sum over them is the whole.
    """

    items: tuple[dict[str, Any], ...]
    total_count: int | None
    is_truncated: bool


_SUBSCRIPTION: Mapping[str, tuple[str, ...]] = {
    "subscription": ("id",),
    "invoice": ("subscription", "parent.subscription_details.subscription"),
    "line_item": (
        "subscription", "parent.subscription_item_details.subscription", "parent.invoice_item_details.subscription",
    ),
    "invoiceitem": ("subscription", "parent.subscription_details.subscription"),
}  # fmt: skip
_PAYMENT_INTENT: Mapping[str, tuple[str, ...]] = {
    "payment_intent": ("id",),
    "invoice": ("payment_intent", "payments.data[].payment.payment_intent"),
}
_CHARGE: Mapping[str, tuple[str, ...]] = {
    "charge": ("id",),
    "payment_intent": ("latest_charge", "charges.data[].id"),
    "invoice": ("charge", "payments.data[].payment.charge"),
}
_NEWEST_FIRST = "charges.data[].id"
"""The charges of an intent, of which the first one counts."""
_CUSTOMER: Mapping[str, tuple[str, ...]] = {"customer": ("id",)}


def customer(subject: Mapping[str, Any]) -> Reading[str]:
    """Return the id of an object's customer: ``null`` for a guest and for what was detached."""
    return _read_id(subject, _CUSTOMER, field="customer")


def subscription(subject: Mapping[str, Any]) -> Reading[str]:
    """Return the id of the subscription that an invoice, a line, a session ... belongs to."""
    return _read_id(subject, _SUBSCRIPTION, field="subscription")


def payment_intent(subject: Mapping[str, Any]) -> Reading[str]:
    """Return the id of the payment intent behind a charge, a refund, a dispute, a session, an invoice."""
    return _read_id(subject, _PAYMENT_INTENT, field="payment_intent")


def charge(subject: Mapping[str, Any]) -> Reading[str]:
    """Return the id of the charge behind a refund, a dispute, an invoice; of an intent, the last one."""
    return _read_id(subject, _CHARGE, field="charge")


def reference(subject: Mapping[str, Any], field: str) -> Reading[str]:
    """Return the id in any field that Stripe gives as an id, as the whole object when expanded, or as null."""
    return _read_id(subject, {}, field=field)


def current_period(subscription: Mapping[str, Any]) -> Reading[Period]:
    """Return the current period of a subscription; ``differs`` when its items have different ones (``item_periods``)."""
    own = _period(subscription)
    if own.problem != "missing":
        return own
    items = lines(subscription, "items")
    found = [_period(item) for item in items.items]
    if not found:
        return own
    if items.is_truncated:
        return Reading(None, "items.data[]", "truncated")
    # An item that says nothing must not be spoken for by its neighbour.
    if any(one != found[0] for one in found):
        return Reading(None, "items.data[]", "differs")
    return Reading(found[0].value, None if found[0].path is None else f"items.data[].{found[0].path}", found[0].problem)


def item_periods(subscription: Mapping[str, Any]) -> dict[str, Period]:
    """Return the period of each item by its id, where the version keeps periods there."""
    periods = {item.get("id"): _period(item).value for item in lines(subscription, "items").items}
    return {name: period for name, period in periods.items() if isinstance(name, str) and period is not None}


def lines(subject: Mapping[str, Any], field: str = "lines") -> Lines:
    """Return the lines that an object shows, and whether they are all.

    An invoice shows at most its first ten: money is in ``amount_paid``, ``total`` ..., never in a sum over these.
    """
    found = subject.get(field)
    found = found if isinstance(found, Mapping) else {}
    data = found.get("data")
    items = tuple(item for item in data if isinstance(item, dict)) if isinstance(data, list) else ()
    count = found.get("total_count")
    total = count if isinstance(count, int) and not isinstance(count, bool) else None
    return Lines(items, total, found.get("has_more") is True or (total is not None and total > len(items)))


def _read_id(subject: Mapping[str, Any], places: Mapping[str, tuple[str, ...]], *, field: str) -> Reading[str]:
    """Read every known place: the first that has a value, unless another one says something else."""
    kind = subject.get("object")
    paths = places.get(kind, (field,)) if isinstance(kind, str) else (field,)
    found = [one for path in paths if (one := _ids(subject, path)).problem != "missing"]
    said = [one for one in found if one.problem in (None, "differs")]
    if len({one.value for one in said}) > 1:
        return Reading(None, said[0].path, "differs")
    # A null must not stand for a place that cannot be read whole.
    unread = [one for one in found if one.problem != "null"]
    return next(iter((*said, *unread, *found)), Reading(None, None, "missing"))


def _ids(subject: Mapping[str, Any], path: str) -> Reading[str]:
    values = list(_walk(subject, path.split(".")))
    is_truncated = path != _NEWEST_FIRST and "[]" in path and lines(subject, path.partition(".")[0]).is_truncated
    if not values:
        return Reading(None, path, "truncated") if is_truncated else Reading(None, None, "missing")
    said = [value for value in values if value is not None]
    ids = [value.get("id") if isinstance(value, Mapping) else value for value in said]
    if not all(isinstance(one, str) and one for one in ids):
        return Reading(None, path, "unreadable")
    if len(set(ids)) > 1 and path != _NEWEST_FIRST:
        return Reading(None, path, "differs")
    if is_truncated:
        return Reading(None, path, "truncated")
    return Reading(ids[0], path) if said else Reading(None, path, "null")


def _walk(value: Any, names: list[str]) -> Iterator[Any]:
    """Yield what stands at a path, None for a null on the way to it; nothing where a name is missing."""
    if value is None or not names:
        yield value
        return
    name = names[0].removesuffix("[]")
    if not isinstance(value, Mapping) or name not in value:
        return
    found = value[name]
    if names[0].endswith("[]"):
        for one in found if isinstance(found, list) else ():
            yield from _walk(one, names[1:])
        return
    yield from _walk(found, names[1:])


def _period(subject: Mapping[str, Any]) -> Reading[Period]:
    start, end = subject.get("current_period_start"), subject.get("current_period_end")
    if "current_period_end" not in subject:
        return Reading(None, None, "missing")
    if start is None or end is None:
        return Reading(None, "current_period_end", "null")
    if type(start) is not int or type(end) is not int:
        return Reading(None, "current_period_end", "unreadable")
    return Reading(Period(start, end), "current_period_end")
