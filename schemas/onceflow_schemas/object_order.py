"""Which of two events tells the newer state of one object.

Rule: the answer depends on the two events alone and never on when they arrived, so that any order of arrival ends in the same
state.  What is for ever decides before any time: an object begins with its ``*.created`` event and ends with its ``*.deleted``
event or in a final status.  Between those Stripe's ``created`` decides.  It has whole seconds, so within one second the rank
tables decide, and only where the lifecycle of the kind leaves no doubt.  Whatever is left is a tie, which this module does not
break: somebody else reads the object, or takes the later record.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple

import orjson

MEASURE_MAX = 2**63 - 1
STATUS_CHARACTERS_MAX = 100
_UNKNOWN = -1


class Order(Enum):
    """What an offered state is to the one that was applied before."""

    NEWER = "newer"
    OLDER = "older"
    SAME = "same"  # The same state, told again by an event of the same type.
    TIE = "tie"  # Another state of the same moment, and nothing says which came first.


class Rank(NamedTuple):
    """Where in its lifecycle an object stands; -1: not known, so that it decides nothing.

    ``measure`` is the sum of amounts and counts that can only grow.
    """

    status: int
    measure: int
    type: int


@dataclass(frozen=True, slots=True)
class ObjectState:
    """The state of one object as one event tells it.

    Attributes:
        kind: the object's ``object``, such as ``subscription``.
        created: Stripe's time of the event, whole seconds.
        rank: decides within one second.
        tombstone: the object was deleted, or is in a status that it never leaves.
        digest: SHA-256 of the object in canonical form.
        event_id, type: of the event.
        status: the object's own, None when it has none.
    """

    kind: str
    created: datetime
    rank: Rank
    tombstone: bool
    digest: bytes
    event_id: str
    type: str
    status: str | None


@dataclass(frozen=True, slots=True)
class _Lifecycle:
    """What is certain about the order of a kind's states.

    Attributes:
        statuses: rank by status; statuses that can follow each other both ways share one.
        final: those that are never left.
        types: rank by event type among events that tell the same status and measure; a type that is missing decides nothing.
        by_type: a rank that counts instead of the status's, for events whose status was there before.
        grows: fields that only grow.
        second_field: a second field that belongs to the status, joined to it by ``/``.
    """

    statuses: Mapping[str, int] = field(default_factory=dict)
    final: frozenset[str] = frozenset()
    types: Mapping[str, int] = field(default_factory=dict)
    by_type: Mapping[str, int] = field(default_factory=dict)
    grows: tuple[str, ...] = ()
    second_field: str | None = None


_INTENT = {
    "requires_payment_method": 0, "requires_confirmation": 10, "requires_action": 20, "processing": 30,
    "requires_capture": 50, "canceled": 60, "succeeded": 70,
}  # fmt: skip
_FAILED_TRY = 40
"""A failed try: the status is that of the beginning again, but it comes after the creation, and before success.  Steps of a try may
be those before it or those of the next one."""

LIFECYCLES: Mapping[str, _Lifecycle] = {
    "subscription": _Lifecycle(
        # Between the five a subscription may go both ways, so within one second nothing is certain.
        statuses={
            "incomplete": 0, "trialing": 10, "active": 10, "past_due": 10, "unpaid": 10, "paused": 10,
            "incomplete_expired": 20, "canceled": 30,
        },
        final=frozenset({"canceled", "incomplete_expired"}),
    ),
    "invoice": _Lifecycle(
        statuses={"draft": 0, "open": 10, "uncollectible": 20, "paid": 30, "void": 40},
        final=frozenset({"void"}),
        types={
            "invoice.finalized": 10, "invoice.sent": 20, "invoice.payment_action_required": 30,
            "invoice.payment_failed": 40, "invoice.payment_succeeded": 50, "invoice.paid": 60,
        },
        grows=("attempt_count", "amount_paid"),
    ),
    "payment_intent": _Lifecycle(
        statuses=_INTENT,
        final=frozenset({"succeeded", "canceled"}),
        by_type={"payment_intent.payment_failed": _FAILED_TRY},
        grows=("amount_received",),
    ),
    "setup_intent": _Lifecycle(
        statuses=_INTENT,
        final=frozenset({"succeeded", "canceled"}),
        by_type={"setup_intent.setup_failed": _FAILED_TRY},
    ),
    "charge": _Lifecycle(
        statuses={"pending": 0, "failed": 10, "succeeded": 20},
        types={"charge.pending": 0, "charge.failed": 10, "charge.succeeded": 10, "charge.captured": 20, "charge.updated": 30},
        grows=("amount_captured", "amount_refunded"),
    ),
    "refund": _Lifecycle(
        # A bank may return a refund that had succeeded, so succeeded is not final.
        statuses={"pending": 0, "requires_action": 10, "succeeded": 20, "canceled": 30, "failed": 40},
    ),
    "dispute": _Lifecycle(
        statuses={
            "warning_needs_response": 0, "warning_under_review": 10, "warning_closed": 20, "needs_response": 30,
            "under_review": 40, "charge_refunded": 50, "prevented": 50, "won": 50, "lost": 50,
        },
        types={"charge.dispute.funds_withdrawn": 10, "charge.dispute.closed": 20, "charge.dispute.funds_reinstated": 30},
    ),
    "checkout.session": _Lifecycle(
        statuses={
            "open/unpaid": 0, "open/paid": 0, "open/no_payment_required": 0, "complete/unpaid": 10, "complete/paid": 20,
            "complete/no_payment_required": 20, "expired/unpaid": 30, "expired/no_payment_required": 30,
        },
        final=frozenset({"expired"}),
        types={"checkout.session.completed": 10, "checkout.session.async_payment_failed": 20},
        second_field="payment_status",
    ),
    "payout": _Lifecycle(
        # A bank may return a payout that was paid.
        statuses={"pending": 0, "in_transit": 10, "paid": 20, "canceled": 30, "failed": 40},
    ),
    "customer": _Lifecycle(),
}  # fmt: skip
"""The kinds whose order within one second is known; in all others only the beginning and the end are."""

_NAMES_CHOSEN_BY_USERS = frozenset({"coupon", "plan", "product", "sku"})
"""Kinds whose ids the account may choose, and use again after a deletion: nothing of theirs is for ever."""

_CREATED, _DELETED = ".created", ".deleted"
_BIRTH, _LIFE, _DEATH, _GONE = -1, 0, 1, 2
"""``_DEATH``: in a final status; ``_GONE``: deleted, which a final status cannot follow."""


def read_state(subject: Mapping[str, Any], *, created: datetime, event_id: str, event_type: str) -> ObjectState:
    """Return the state that an event tells of its object.

    Args:
        subject: the object (``data.object``).
        created: Stripe's time of the event.
        event_id: ``evt_...``.
        event_type: Stripe's type.
    """
    kind = _text(subject.get("object")) or ""
    status = _text(subject.get("status"))
    lifecycle = LIFECYCLES.get(kind)
    is_final = lifecycle is not None and status in lifecycle.final
    return ObjectState(
        kind=kind,
        created=created,
        rank=_rank(lifecycle, subject, kind=kind, event_type=event_type),
        tombstone=is_final or (event_type.endswith(_DELETED) and kind not in _NAMES_CHOSEN_BY_USERS),
        digest=digest_of(subject),
        event_id=event_id,
        type=event_type,
        status=status,
    )


def compare(applied: ObjectState | None, offered: ObjectState) -> Order:
    """Say what an offered state is to the applied one; None: nothing was applied yet."""
    if applied is None:
        return Order.NEWER
    if applied.digest == offered.digest:
        if applied.type == offered.type:
            return Order.SAME
        # Two events that tell one state cannot lower each other; each type has its own meaning, so each is told once.  Only
        # behind a deletion there is nothing more to tell.
        return Order.OLDER if _phase(offered) < _phase(applied) == _GONE else Order.NEWER
    before, after = (_phase(applied), applied.created), (_phase(offered), offered.created)
    if before != after:
        return Order.NEWER if before < after else Order.OLDER
    if _is_of_another_try(applied, offered) or _is_of_another_try(offered, applied):
        return Order.TIE
    return _compare_ranks(applied.rank, offered.rank)


def _is_of_another_try(failed: ObjectState, step: ObjectState) -> bool:
    """True for a failed try and a step of a try: the step came before it, or is that of the next try in the same second."""
    lifecycle = LIFECYCLES.get(failed.kind)
    if lifecycle is None or failed.type not in lifecycle.by_type or step.type in lifecycle.by_type:
        return False
    return 0 < lifecycle.statuses.get(step.status or "", 0) < lifecycle.by_type[failed.type]


def applied_after(applied: ObjectState | None, offered: ObjectState, *, order: Order) -> ObjectState:
    """Return what counts as applied once the offered state's event has gone well; it never goes back."""
    if applied is None:
        return offered
    if applied.digest == offered.digest:
        return max((applied, offered), key=lambda state: (_phase(state), state.created, state.rank))
    return applied if order is Order.OLDER else offered


def is_deletion(state: ObjectState) -> bool:
    """Tell whether an object ended by being deleted."""
    return state.tombstone and state.type.endswith(_DELETED)


def digest_of(value: Any) -> bytes:
    """Return SHA-256 of a JSON value in canonical form: keys sorted, no spaces."""
    try:
        canonical = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        # Integers beyond 64 bits, which the standard library writes as they are.
        canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return hashlib.sha256(canonical).digest()


def transition_of(state: ObjectState, *, previous_attributes: Mapping[str, Any], request_id: str | None) -> bytes:
    """Return what makes a transition that transition: equal for two events that Stripe made of one change.

    Without a request only the content can tell two changes of one second apart: an object may go there and back.
    """
    names = [state.type, int(state.created.timestamp()), dict(previous_attributes), request_id]
    if request_id is None:
        names.append(state.digest.hex())
    return digest_of(names)


def _compare_ranks(applied: Rank, offered: Rank) -> Order:
    if _UNKNOWN in (applied.status, offered.status):
        return Order.TIE
    before, after = applied[:2], offered[:2]
    if before != after:
        return Order.NEWER if before < after else Order.OLDER
    if applied.type == offered.type or _UNKNOWN in (applied.type, offered.type):
        return Order.TIE
    return Order.NEWER if applied.type < offered.type else Order.OLDER


def _phase(state: ObjectState) -> int:
    if state.tombstone:
        return _GONE if is_deletion(state) else _DEATH
    if state.type.endswith(_CREATED) and state.kind not in _NAMES_CHOSEN_BY_USERS:
        return _BIRTH
    return _LIFE


def _rank(lifecycle: _Lifecycle | None, subject: Mapping[str, Any], *, kind: str, event_type: str) -> Rank:
    if kind in _NAMES_CHOSEN_BY_USERS:
        return Rank(0, 0, {_CREATED: 0, _DELETED: 20}.get(event_type[event_type.rfind(".") :], 10))
    if lifecycle is None:
        return Rank(_UNKNOWN, 0, _UNKNOWN)
    measure = sum(_count(subject.get(name)) for name in lifecycle.grows)
    return Rank(
        _status_rank(lifecycle, subject, event_type),
        min(measure, MEASURE_MAX),
        lifecycle.types.get(event_type, _UNKNOWN),
    )


def _status_rank(lifecycle: _Lifecycle, subject: Mapping[str, Any], event_type: str) -> int:
    if event_type in lifecycle.by_type:
        return lifecycle.by_type[event_type]
    if not lifecycle.statuses:
        return 0
    status = subject.get("status")
    if lifecycle.second_field is not None:
        status = f"{status}/{subject.get(lifecycle.second_field)}"
    return lifecycle.statuses.get(status, _UNKNOWN) if isinstance(status, str) else _UNKNOWN


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _text(value: object) -> str | None:
    return value[:STATUS_CHARACTERS_MAX] if isinstance(value, str) else None
