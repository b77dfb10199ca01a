"""I1, I5 and the first half of I9: what was accepted is in the topic, and every record has exactly one state.

Rule: a record's state follows from rows alone.  A quarantine row stands at its position, or the marker of its
identity does, or that marker names another position (a duplicate); two of these at once, or none, is a fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.checker.snapshot import (
    ANSWERED,
    REFUSED_FROM,
    REFUSED_TO,
    EventEntry,
    Identity,
    Marker,
    Position,
    QuarantineRow,
    Snapshot,
)
from tests.checker.violation import Violation

FINAL_STATES = frozenset({"processed", "ignored", "quarantined"})
UNTRUSTED_CODES = frozenset(
    {"unauthenticated", "unknown_key_id", "bad_headers", "too_many_headers", "empty_record", "future_version"}
)
"""Codes of records that nobody vouches for: they may never touch the markers."""


@dataclass(frozen=True, slots=True)
class States:
    """What became of each record, and the rows by their keys."""

    by_position: Mapping[Position, str]
    markers: Mapping[Identity, Marker]
    quarantine: Mapping[Position, QuarantineRow]
    entries: Mapping[Position, EventEntry]


def states_of(snapshot: Snapshot) -> States:
    """Return the state of every record that has one."""
    markers = {marker.identity: marker for marker in snapshot.markers}
    quarantine = {row.position: row for row in snapshot.quarantine}
    entries = {entry.position: entry for entry in snapshot.events}
    by_position: dict[Position, str] = {}
    for entry in snapshot.events:
        marker = markers.get(entry.identity) if entry.identity is not None else None
        if entry.position in quarantine:
            by_position[entry.position] = "quarantined"
        elif marker is not None and _passed(snapshot, entry):
            by_position[entry.position] = marker.state if marker.position == entry.position else "duplicate"
    return States(by_position, markers, quarantine, entries)


def _passed(snapshot: Snapshot, entry: EventEntry) -> bool:
    return any(row.partition == entry.partition and entry.offset < row.next_offset for row in snapshot.progress)


def judge_events(snapshot: Snapshot, states: States) -> list[Violation]:
    """Return the broken invariants about events, markers, quarantine and progress."""
    return [
        *_lost(snapshot, states),
        *_unverified(snapshot),
        *_progress(snapshot, states),
        *_markers(snapshot, states),
        *_waiting(snapshot),
        *_quarantine(snapshot, states),
    ]


def _lost(snapshot: Snapshot, states: States) -> Iterator[Violation]:
    """I1: every 200 has its body in the topic, and that body one final state, or it is parked and not yet due."""
    records: dict[bytes, list[EventEntry]] = {}
    for entry in snapshot.events:
        if entry.body_sha256 is not None:
            records.setdefault(entry.body_sha256, []).append(entry)
    answered = {delivery.body_sha256: delivery for delivery in snapshot.deliveries if delivery.status == ANSWERED}
    for digest, delivery in answered.items():
        if not delivery.signed:
            yield Violation("I9", f"a request with a wrong signature was answered 200 (body {digest.hex()[:12]})")
        if digest not in records:
            yield Violation("I1", f"answered 200 but not in the topic: body {digest.hex()[:12]}")
            continue
        for entry in records[digest]:
            if (state := states.by_position.get(entry.position)) is None:
                yield Violation("I1", f"answered 200 but without a state: {entry.identity} at {entry.position}")
            elif state == "parked" and entry.identity in snapshot.waiting:
                continue
            elif state not in FINAL_STATES | {"duplicate"}:
                yield Violation("I1", f"answered 200 but {state}: {entry.identity} at {entry.position}")


def _unverified(snapshot: Snapshot) -> Iterator[Violation]:
    """I9: no body that was only ever sent with a wrong signature is in the topic."""
    right = {delivery.body_sha256 for delivery in snapshot.deliveries if delivery.signed}
    wrong = {delivery.body_sha256 for delivery in snapshot.deliveries if not delivery.signed} - right
    for entry in snapshot.events:
        if entry.body_sha256 in wrong:
            yield Violation("I9", f"an unverified body is in the topic at {entry.position}")
    for delivery in snapshot.deliveries:
        if delivery.signed and delivery.status is not None and REFUSED_FROM <= delivery.status <= REFUSED_TO:
            body = delivery.body_sha256.hex()[:12]
            yield Violation("I1", f"a right signature was refused with {delivery.status} (body {body})")


def _progress(snapshot: Snapshot, states: States) -> Iterator[Violation]:
    """I5: no record before progress is without a state; progress is within the log."""
    reached = {row.partition: row for row in snapshot.progress}
    for row in snapshot.progress:
        if row.next_offset > row.log_end:
            yield Violation("I5", f"partition {row.partition}: progress {row.next_offset} is beyond {row.log_end}")
        if row.stopped is not None:
            yield Violation("I8", f"partition {row.partition} is stopped: {row.stopped}")
    for entry in snapshot.events:
        row_or_none = reached.get(entry.partition)
        if row_or_none is None or entry.offset >= row_or_none.next_offset:
            yield Violation("I1", f"not reached: {entry.identity} at {entry.position}")
        elif entry.position not in states.by_position:
            yield Violation("I5", f"progress passed a record without a state: {entry.identity} at {entry.position}")
        elif states.by_position[entry.position] == "duplicate" and entry.identity is not None:
            first = states.markers[entry.identity].position
            if first[0] == entry.partition and first[1] > entry.offset:
                yield Violation(
                    "I5", f"{entry.identity}: the record {entry.position} was passed, a later one {first} marked"
                )


def _forgotten(snapshot: Snapshot, position: Position) -> bool:
    """Whether the log begins behind it: a record that says it is years old goes with the next look of the retention."""
    partition, offset = position
    return any(offset < one.log_start for one in snapshot.progress if one.partition == partition)


def _markers(snapshot: Snapshot, states: States) -> Iterator[Violation]:
    """A marker names the record that made it, byte for byte, and says of it what the body says."""
    for marker in snapshot.markers:
        entry = states.entries.get(marker.position)
        if entry is None:
            if not _forgotten(snapshot, marker.position):
                yield Violation("I3", f"the marker {marker.identity} names {marker.position}, where no record is")
            continue
        if entry.identity != marker.identity or (entry.told_sha256 or entry.body_sha256) != marker.body_sha256:
            yield Violation("I3", f"the marker {marker.identity} names {marker.position}, which is {entry.identity}")
        if not _passed(snapshot, entry):
            yield Violation("I3", f"the marker {marker.identity} stands, but progress has not passed {marker.position}")
        row = states.quarantine.get(marker.position)
        if (marker.state == "quarantined") != (row is not None):
            yield Violation("I1", f"{marker.identity} is {marker.state}, its quarantine row: {row}")
        if row is not None and row.code in UNTRUSTED_CODES:
            yield Violation("I9", f"an untrusted record ({row.code}) touched the marker {marker.identity}")
        if marker.state in {"processed", "ignored"}:
            account, mode, event_id = entry.body_identity
            if (account or marker.identity[0], mode, event_id) != marker.identity:
                yield Violation("I9", f"the marker {marker.identity} is not what its body says: {entry.body_identity}")


def _waiting(snapshot: Snapshot) -> Iterator[Violation]:
    """Whoever waits says so."""
    for marker in snapshot.markers:
        if marker.identity in snapshot.waiting and marker.state != "parked":
            yield Violation("I3", f"{marker.identity} is {marker.state} and waits in parked")


def _quarantine(snapshot: Snapshot, states: States) -> Iterator[Violation]:
    """Bytes are kept whole; only what should be is quarantined, with the right code; what should be, is."""
    codes: dict[bytes, frozenset[str]] = {d.body_sha256: d.codes for d in snapshot.deliveries if d.codes}
    for row in snapshot.quarantine:
        entry = states.entries.get(row.position)
        if entry is None:
            if not _forgotten(snapshot, row.position):
                yield Violation("I3", f"the quarantine row {row.position} names no record")
            continue
        if entry.body_sha256 != row.value_sha256:
            yield Violation("I1", f"the quarantine row {row.position} does not hold the record's bytes")
        allowed = snapshot.planted.get(row.position) or codes.get(row.value_sha256 or b"")
        if allowed is None:
            yield Violation("I1", f"a good event was quarantined: {entry.identity} at {row.position} with {row.code}")
        elif row.code not in allowed:
            yield Violation("I1", f"{row.position} was quarantined with {row.code}, expected {sorted(allowed)}")
    for entry in snapshot.events:
        due = snapshot.planted.get(entry.position) or codes.get(entry.body_sha256 or b"")
        if due and states.by_position.get(entry.position) not in {"quarantined", "duplicate", None}:
            yield Violation("I1", f"{entry.position} should be quarantined ({sorted(due)}) and was not")
