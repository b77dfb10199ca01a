"""A small sound snapshot, written by hand: three payments, a repeat, an ignored type and a bad body on two partitions.

Rule: it is legal in every field, so that a test changes exactly one thing and sees exactly that thing convicted.
"""

from __future__ import annotations

import hashlib
import uuid
from datetime import UTC, datetime

from tests.checker.judge_outcomes import murmur2
from tests.checker.snapshot import (
    Delivery,
    EventEntry,
    Fact,
    Identity,
    Lane,
    Marker,
    Outcome,
    Progress,
    QuarantineRow,
    Snapshot,
    Wanted,
)

LANES = 1
ACCOUNT = "acct_1"
AT = datetime(2026, 1, 1, tzinfo=UTC)


def digest(text: str) -> bytes:
    """Return the hash that stands for a body or value of this text."""
    return hashlib.sha256(text.encode()).digest()


def identity(event_id: str) -> Identity:
    """Return the identity of a test event."""
    return (ACCOUNT, "test", event_id)


def entry(partition: int, offset: int, event_id: str, *, kind: str, wanted: Wanted | None) -> EventEntry:
    """Return a sound record of an event."""
    return EventEntry(
        partition=partition,
        offset=offset,
        key=b"acct_1/pi_1",
        body_sha256=digest(event_id),
        identity=identity(event_id),
        type=kind,
        body_identity=(None, "test", event_id),
        handled=wanted is not None,
        wanted=wanted,
    )


def marker(found: EventEntry, state: str) -> Marker:
    """Return the marker that belongs to a record."""
    assert found.identity is not None
    assert found.body_sha256 is not None
    return Marker(found.identity, state, found.type or "", found.position, found.body_sha256)


def outcome(seq: int, event_id: str, *, kind: str, key: str, offset: int | None = None) -> Outcome:
    """Return an outcome in lane 0; with ``offset`` it is the record of the topic."""
    outcome_id = str(uuid.uuid5(uuid.NAMESPACE_OID, event_id))
    return Outcome(
        lane=(murmur2(key.encode()) & 0x7FFFFFFF) % LANES,
        seq=seq,
        outcome_id=outcome_id,
        revision=1,
        ce_id=outcome_id,
        type=kind,
        key=key,
        value_sha256=digest(f"value of {event_id}"),
        cause=f"event:{ACCOUNT}/test/{event_id}",
        created_at=AT,
        offset=offset,
    )


PAID_1 = entry(0, 0, "evt_1", kind="payment_intent.succeeded", wanted=Wanted("payment.succeeded", "pi_1", once=True))
PAID_1_AGAIN = entry(0, 1, "evt_1", kind="payment_intent.succeeded", wanted=PAID_1.wanted)
PAID_1_TWIN = entry(0, 2, "evt_2", kind="payment_intent.succeeded", wanted=PAID_1.wanted)
FAILED = entry(0, 3, "evt_3", kind="payment_intent.payment_failed", wanted=Wanted("payment.failed", "pi_1"))
IGNORED = entry(1, 0, "evt_4", kind="payout.paid", wanted=None)
REFUNDED = entry(1, 1, "evt_5", kind="charge.refunded", wanted=Wanted("charge.refunded", "ch_1"))
ODD = entry(1, 2, "sha256:odd", kind="unknown", wanted=None)

ROWS = (
    outcome(1, "evt_1", kind="payment.succeeded", key="pi_1"),
    outcome(2, "evt_3", kind="payment.failed", key="pi_1"),
    outcome(3, "evt_5", kind="charge.refunded", key="ch_1"),
)

SOUND = Snapshot(
    deliveries=(
        *(Delivery(digest(f"evt_{number}"), 200) for number in (1, 1, 2, 3, 4, 5)),
        Delivery(digest("evt_5"), None),
        Delivery(digest("evt_5"), 503),
        Delivery(digest("sha256:odd"), 200, codes=frozenset({"not_an_event"})),
        Delivery(digest("forged"), 400, signed=False),
    ),
    events=(PAID_1, PAID_1_AGAIN, PAID_1_TWIN, FAILED, IGNORED, REFUNDED, ODD),
    markers=(
        marker(PAID_1, "processed"),
        marker(PAID_1_TWIN, "processed"),
        marker(FAILED, "processed"),
        marker(IGNORED, "ignored"),
        marker(REFUNDED, "processed"),
    ),
    quarantine=(QuarantineRow((1, 2), "not_an_event", identity("sha256:odd"), digest("sha256:odd"), 10),),
    progress=(Progress(0, 4, 1, None, 0, 4), Progress(1, 3, 1, None, 0, 3)),
    lanes=(Lane(0, 3, 3, "ok"),),
    rows=ROWS,
    published=tuple(
        outcome(row.seq, row.cause.rpartition("/")[2], kind=row.type, key=row.key, offset=index * 2)
        for index, row in enumerate(ROWS)
    ),
    facts=(Fact("payment", "pi_1", f"event:{ACCOUNT}/test/evt_1"),),
    effects=("evt_1", "evt_2", "evt_3", "evt_5"),
)
