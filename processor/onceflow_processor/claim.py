"""Claiming the markers of a batch, set-based, and finding repeats that say something else.

Rule: a marker is claimed by ``INSERT ... ON CONFLICT DO NOTHING RETURNING`` in the order of the identities and never by
looking first; whoever does not get it is a repeat, and a second copy in one batch is a repeat whatever the first did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Connection

from onceflow_processor.admission import Fault, Item, glimpse_api_version
from onceflow_processor.arrays import Bigints, Blobs, Integers, Texts
from onceflow_processor.conflict import is_conflict
from onceflow_processor.handlers import Handlers
from onceflow_processor.parking import Redriven
from onceflow_schemas.event_record import EventRecord
from onceflow_schemas.identity import Identity
from onceflow_schemas.sql import queries

_SQL = queries("batch")
_PARKING = queries("parking")


@dataclass(frozen=True, slots=True)
class Claimed:
    """``firsts`` are ours to do; ``duplicates`` counts the repeats; ``conflicts`` are repeats with other content.

    ``parked_keys`` are the order keys behind which events of the batch have to wait.
    """

    firsts: list[Item]
    duplicates: int
    conflicts: list[tuple[Item, Fault]]
    parked_keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class Entry:
    """How events come into a batch.

    ``markers`` is the statement that takes their markers: it is given the columns of ``claim`` and returns the identities
    that are ours to do.  ``has_progress`` is False when the records are not read in their turn: then no position moves, and
    the positions that a batch is given only tell topic ids.  ``redriven`` is the parked key whose head is tried again, maybe with events behind it.
    ``note`` writes in the place of progress, in the same pipeline: it is given the connection, the items and what was counted.
    """

    markers: bytes
    has_progress: bool
    redriven: Redriven | None = None
    note: Callable[[Connection[Any], Sequence[Item], Mapping[str, int]], None] | None = None


IN_TURN = Entry(_SQL["claim"], has_progress=True)
OUT_OF_TURN = Entry(_SQL["claim"], has_progress=False)


@dataclass(frozen=True, slots=True)
class _Offer:
    offered: dict[Identity, Item]
    repeats: list[Item]


def claim(
    connection: Connection[Any],
    items: Sequence[Item],
    *,
    entry: Entry = IN_TURN,
    handlers: Handlers,
    topic_id_of: Callable[[Item], str],
    open_transaction: Callable[[], None],
) -> Claimed:
    """Open the transaction and claim the markers of all trusted items, in one round trip.

    Args:
        connection: the batch's connection, idle.
        items: the batch in its order.
        entry: how they come in.
        handlers: tells the state that a marker gets if nothing fails.
        topic_id_of: the topic id of an item.
        open_transaction: sends the first statements of the transaction; called inside the pipeline.
    """
    offer = _offer(items)
    sent = [item for _, item in sorted(offer.offered.items())]
    with connection.pipeline():
        open_transaction()
        cursor = parked = None
        if sent:
            parameters = claim_parameters(sent, handlers=handlers, topic_id_of=topic_id_of)
            cursor = connection.execute(entry.markers, parameters)
        if sent and entry.redriven is None:
            parked = connection.execute(_PARKING["parked_keys"], {"order_keys": _order_keys(sent, handlers)})
    ours = set() if cursor is None else {Identity(*row) for row in cursor.fetchall()}
    assert ours <= offer.offered.keys(), "the claim answers with identities that were offered"
    firsts = [item for identity, item in offer.offered.items() if identity in ours]
    known = [item for identity, item in offer.offered.items() if identity not in ours]
    duplicates = len(known) + len(offer.repeats)
    conflicts = _conflicts(connection, offer, known) if duplicates else []
    parked_keys = frozenset() if parked is None else frozenset(key for (key,) in parked.fetchall())
    return Claimed(firsts, duplicates, conflicts, parked_keys)


def redriven(key: Redriven) -> Entry:
    """Return how the head of a parked key, and what comes along with it, comes in."""
    return Entry(_PARKING["claim_parked"], has_progress=False, redriven=key)


def event_of(item: Item) -> EventRecord:
    """Return the event of an item that has one; anything else here is a bug."""
    if item.event is None:
        message = "only records that somebody vouches for are claimed"
        raise AssertionError(message)
    return item.event


def _offer(items: Sequence[Item]) -> _Offer:
    offer = _Offer({}, [])
    for item in items:
        if item.event is None:
            continue
        if offer.offered.setdefault(item.event.identity, item) is not item:
            offer.repeats.append(item)
    return offer


def _order_keys(items: Sequence[Item], handlers: Handlers) -> Texts:
    may_wait = (item for item in items if item.fault is None or item.fault.blocks)
    return Texts({item.order_key for item in may_wait if handlers.for_type(event_of(item).type)})


def claim_parameters(
    items: Sequence[Item], *, handlers: Handlers, topic_id_of: Callable[[Item], str]
) -> dict[str, Any]:
    """Return the columns of the statement ``claim``, in the order of the items."""
    events = [event_of(item) for item in items]
    return {
        "handler_set": handlers.fingerprint(),
        "accounts": Texts(event.identity.account for event in events),
        "modes": Texts(event.identity.mode for event in events),
        "event_ids": Texts(event.identity.event_id for event in events),
        "states": Texts(_expected_state(item, handlers) for item in items),
        "types": Texts(event.type for event in events),
        "object_ids": Texts(event.object_id for event in events),
        "api_versions": Texts(glimpse_api_version(item.body) for item in items),
        "topic_ids": Texts(topic_id_of(item) for item in items),
        "partitions": Integers(item.record.partition.number for item in items),
        "offsets": Bigints(item.record.offset for item in items),
        "body_sha256s": Blobs(event.body_sha256 for event in events),
        "createds": Texts(event.created_text for event in events),
        "received_ats": Texts(event.received_at_text for event in events),
    }


def _expected_state(item: Item, handlers: Handlers) -> str:
    if item.fault is not None:
        return "quarantined"
    return "processed" if handlers.for_type(event_of(item).type) else "ignored"


def _conflicts(connection: Connection[Any], offer: _Offer, known: Sequence[Item]) -> list[tuple[Item, Fault]]:
    firsts = {
        identity: (event_of(item).body_sha256, glimpse_api_version(item.body))
        for identity, item in offer.offered.items()
    }
    if known:
        identities = [event_of(item).identity for item in known]
        rows = connection.execute(
            _SQL["other_content"],
            {
                "accounts": Texts(identity.account for identity in identities),
                "modes": Texts(identity.mode for identity in identities),
                "event_ids": Texts(identity.event_id for identity in identities),
                "body_sha256s": Blobs(event_of(item).body_sha256 for item in known),
            },
        ).fetchall()
        firsts.update({Identity(*row[:3]): (bytes(row[3]), row[4]) for row in rows})
    fault = Fault("content_conflict", "the same event id came before with other content")
    return [(item, fault) for item in (*known, *offer.repeats) if _differs(item, firsts[event_of(item).identity])]


def _differs(item: Item, first: tuple[bytes, str | None]) -> bool:
    if event_of(item).body_sha256 == first[0]:
        return False
    return is_conflict(
        item.body,
        digest=event_of(item).body_sha256,
        api_version=glimpse_api_version(item.body),
        first_digest=first[0],
        first_api_version=first[1],
    )
