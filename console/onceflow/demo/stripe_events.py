"""Events as Stripe sends them: small stories of payments, subscriptions and disputes, in 24 types.

Rule: a seed and a count are the whole input; the same two give the same bytes again, so that a failed run can be
repeated.  Bodies are written as Stripe writes them (two spaces of indent, UTF-8), 0.5 to 60 kB, median about 3 kB.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import orjson

from onceflow.demo import stripe_objects as objects
from onceflow.demo.stripe_objects import Customer, Object, new_id

BODY_BYTES_MIN = 500
BODY_BYTES_MAX = 60_000
BODY_BYTES_AIMED_MAX = 54_000
"""What a body grows by is estimated, so the aim keeps clear of the limit."""
BODY_BYTES_MEDIAN = 3_000
SIZE_SPREAD = 0.95
"""Standard deviation of the logarithm of the size: most bodies lie between 1 and 9 kB, a few are very large."""

METADATA_KEYS_MAX = 50
METADATA_VALUE_CHARACTERS_MAX = 500
"""Stripe's own limits on metadata; larger objects grow by lines of a nested list instead."""

TWIN_SHARE = 0.04
"""Stripe may make two Event objects for one change: this share of payments and invoices is told twice."""

REFUND_SHARE = 0.3
SECOND_REFUND_SHARE = 0.5
LATE_PAYER_SHARE = 0.2
CANCEL_SHARE = 0.3
WON_DISPUTE_SHARE = 0.5

COMPACT_BYTES_MAX = 1_000
"""Small events are written without indent (a hop in between may do so), so that both forms occur."""


@dataclass(frozen=True, slots=True)
class StripeEvent:
    """One event: its id, type, the id of its object, and the exact bytes that get signed."""

    id: str
    type: str
    object_id: str
    body: bytes


_EMPTY = re.compile(rb'\n( *)("[^"]*": )?(\{\}|\[\])(?=,?\n)')
"""A line that holds nothing but an empty object or list, perhaps behind its key."""

Change = tuple[str, Object]
"""An event type and the object after the change."""


def stripe_events(*, seed: int, count: int, now: int) -> list[StripeEvent]:
    """Return ``count`` events in the order in which things happened.

    Args:
        seed: of all randomness.
        count: how many events, 1 or more; the last story may be cut short.
        now: unix seconds; the events were created within the hour before.
    """
    return list(itertools.islice(_stream(Random(seed), now - 3_600), count))  # noqa: S311 - test data, must repeat


def _stream(random: Random, start: int) -> Iterator[StripeEvent]:
    for number in itertools.count():
        created = start + number % 3_500
        story = random.choices(STORIES, STORY_WEIGHTS)[0]
        for kind, changed in story(objects.new_customer(random), random, created):
            yield _event(kind, changed, random, created)
            if kind in {"payment_intent.succeeded", "invoice.paid"} and random.random() < TWIN_SHARE:
                yield _event(kind, changed, random, created)


def _event(kind: str, changed: Object, random: Random, created: int) -> StripeEvent:
    event_id = new_id("evt", random)
    event: Object = {
        "id": event_id,
        "object": "event",
        "api_version": objects.API_VERSION,
        "created": created,
        "data": {"object": changed},
        "livemode": False,
        "pending_webhooks": 1,
        "request": {"id": new_id("req", random), "idempotency_key": None},
        "type": kind,
    }
    if kind.endswith(".updated"):
        event["data"]["previous_attributes"] = {"metadata": {}}
    size = BODY_BYTES_MEDIAN * math.exp(random.gauss(0, SIZE_SPREAD))
    target = int(min(max(size, BODY_BYTES_MIN), BODY_BYTES_AIMED_MAX))
    return StripeEvent(event_id, kind, str(changed.get("id", "")), _body(event, target, random))


def _body(event: Object, target: int, random: Random) -> bytes:
    """Write the event, grown towards ``target`` bytes by what grows real objects: notes and lines."""
    compact = orjson.dumps(event)
    if target < COMPACT_BYTES_MAX and len(compact) >= BODY_BYTES_MIN:
        return compact
    subject = event["data"]["object"]
    missing = target - _size(event)
    if missing > 0 and "lines" in subject:
        line = subject["lines"]["data"][0]
        copies = missing // (_size(line) * 3 // 2 + 1)
        subject["lines"]["data"] += [line | {"id": new_id("il", random), "amount": 0} for _ in range(copies)]
        subject["lines"]["total_count"] = len(subject["lines"]["data"])
    missing = target - _size(event)
    subject["metadata"] = _notes(missing, random) | subject.get("metadata", {})
    return _pretty(event)


def _notes(size: int, random: Random) -> Object:
    notes: Object = {}
    for number in range(METADATA_KEYS_MAX - 1):
        if size < METADATA_VALUE_CHARACTERS_MAX // 10:
            break
        length = min(size, METADATA_VALUE_CHARACTERS_MAX)
        notes[f"note_{number:02d}"] = random.randbytes(length // 2 + 1).hex()[:length]
        size -= length + 30
    return notes


def _pretty(value: Object) -> bytes:
    """Write as Stripe does: two spaces of indent, an empty object over two lines, an empty list over three, no bare ``&``."""
    written = orjson.dumps(value, option=orjson.OPT_INDENT_2)
    return _EMPTY.sub(_spread, written).replace(b"&", b"\\u0026")


def _size(value: Object) -> int:
    """The bytes of a body before its last form: near enough to aim by."""
    return len(orjson.dumps(value, option=orjson.OPT_INDENT_2))


def _spread(found: re.Match[bytes]) -> bytes:
    indent, key, empty = found.groups()
    inside = b"\n" if empty == b"{}" else b"\n\n"
    return b"".join((b"\n", indent, key or b"", empty[:1], inside, indent, empty[1:]))


def _amount(random: Random) -> int:
    return random.choice((500, 999, 1_099, 1_900, 4_200, 9_899, 15_000, random.randrange(50, 1_000_000)))


def _payment(customer: Customer, random: Random, created: int) -> Iterator[Change]:
    """A payment that works: and now and then goes back, in parts."""
    intent, charge, amount = new_id("pi", random), new_id("ch", random), _amount(random)

    def charged(refunded: int) -> Object:
        return objects.charge(
            customer, random, id=charge, intent=intent, amount=amount, refunded=refunded, paid=True, created=created
        )

    waiting = "requires_payment_method"
    yield (
        "payment_intent.created",
        objects.payment_intent(
            customer, random, id=intent, amount=amount, status=waiting, charge=None, created=created
        ),
    )
    yield "charge.succeeded", charged(0)
    yield (
        "payment_intent.succeeded",
        objects.payment_intent(
            customer, random, id=intent, amount=amount, status="succeeded", charge=charge, created=created
        ),
    )
    if random.random() < REFUND_SHARE:
        half = amount // 2
        yield (
            "refund.created",
            objects.refund(customer, random, charge=charge, intent=intent, amount=half, created=created),
        )
        yield "charge.refunded", charged(half)
        if random.random() < SECOND_REFUND_SHARE:
            yield "charge.refunded", charged(amount)


def _decline(customer: Customer, random: Random, created: int) -> Iterator[Change]:
    """A card that is declined."""
    intent, charge, amount = new_id("pi", random), new_id("ch", random), _amount(random)
    yield (
        "charge.failed",
        objects.charge(
            customer, random, id=charge, intent=intent, amount=amount, refunded=0, paid=False, created=created
        ),
    )
    yield (
        "payment_intent.payment_failed",
        objects.payment_intent(
            customer,
            random,
            id=intent,
            amount=amount,
            status="requires_payment_method",
            charge=charge,
            created=created,
        ),
    )


def _subscribe(customer: Customer, random: Random, created: int) -> Iterator[Change]:
    """A subscription: its first invoice, a change, perhaps its end."""
    subscription, invoice = new_id("sub", random), new_id("in", random)
    lines = [objects.invoice_line(customer, random, subscription=subscription, amount=_amount(random), start=created)]

    def billed(status: str) -> Object:
        return objects.invoice(
            customer, random, id=invoice, subscription=subscription, status=status, lines=list(lines), created=created
        )

    def subscribed(status: str) -> Object:
        return objects.subscription(customer, random, id=subscription, status=status, created=created)

    yield "customer.created", objects.customer_object(customer, random, created=created)
    yield "customer.subscription.created", subscribed("incomplete")
    yield "invoice.created", billed("draft")
    yield "invoice.finalized", billed("open")
    if random.random() < LATE_PAYER_SHARE:
        yield "invoice.payment_failed", billed("open")
        yield "customer.subscription.updated", subscribed("past_due")
    yield "invoice.paid", billed("paid")
    yield "customer.subscription.updated", subscribed("active")
    yield "customer.updated", objects.customer_object(customer, random, created=created)
    if random.random() < CANCEL_SHARE:
        yield "customer.subscription.deleted", subscribed("canceled")


def _quarrel(customer: Customer, random: Random, created: int) -> Iterator[Change]:
    """A dispute from its start to its end."""
    identity = {"id": new_id("dp", random), "charge": new_id("ch", random), "intent": new_id("pi", random)}
    amount = _amount(random)
    won = random.random() < WON_DISPUTE_SHARE
    steps = [
        ("charge.dispute.created", "needs_response"),
        ("charge.dispute.funds_withdrawn", "needs_response"),
        ("charge.dispute.updated", "under_review"),
        ("charge.dispute.closed", "won" if won else "lost"),
    ]
    if won:
        steps.append(("charge.dispute.funds_reinstated", "won"))
    for kind, status in steps:
        yield kind, objects.dispute(customer, random, **identity, amount=amount, status=status, created=created)


def _money_moves(customer: Customer, random: Random, created: int) -> Iterator[Change]:
    """What nobody has a handler for: it must be counted as ignored, not lost."""
    yield "payout.paid", objects.payout(random, amount=_amount(random), created=created)
    details = objects.billing_details(customer, random)
    method = {"id": new_id("pm", random), "object": "payment_method", "billing_details": details, "type": "card"}
    yield "payment_method.attached", method | {"customer": customer.id, "created": created, "livemode": False}
    available = [{"amount": _amount(random), "currency": "eur", "source_types": {"card": 1}}]
    pending = [item | {"amount": _amount(random)} for item in available]
    balance = {
        "object": "balance",
        "available": available,
        "connect_reserved": [],
        "livemode": False,
        "pending": pending,
    }
    yield "balance.available", balance | {"instant_available": available, "issuing": {"available": available}}


STORIES = (_payment, _decline, _subscribe, _quarrel, _money_moves)
STORY_WEIGHTS = (50, 12, 20, 8, 10)
