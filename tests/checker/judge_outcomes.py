"""I4: each outcome once in the topic, the lanes dense and in order, record and row the same.

Rule: the topic is judged as a consumer sees it (read_committed, in offset order), against the rows, against the heads of
the lanes, and against the order in which the events stand in their topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from tests.checker.snapshot import Outcome, Position, Snapshot
from tests.checker.violation import Violation

Place = tuple[int, int]
"""(lane, seq)."""


def judge_outcomes(snapshot: Snapshot) -> list[Violation]:
    """Return the broken invariants about the outcome topic and its table."""
    return [
        *(Violation("I4", f"a foreign record at {f.partition}/{f.offset}: {f.why}") for f in snapshot.foreign),
        *_sequence(snapshot),
        *_same_as_row(snapshot),
        *_heads(snapshot),
        *_ids(snapshot),
        *_order_of_causes(snapshot),
    ]


def _sequence(snapshot: Snapshot) -> Iterator[Violation]:
    """In offset order, each lane of the topic is 1, 2, 3 ... n; what was lost may stand behind, where it says so."""
    lanes: dict[int, list[Outcome]] = {}
    for entry in snapshot.published:
        lanes.setdefault(entry.lane, []).append(entry)
    for lane, entries in lanes.items():
        entries.sort(key=lambda entry: entry.offset or 0)
        refilled = {entry.seq for entry in entries if entry.refill}
        number = 0
        for entry in entries:
            if entry.refill:
                continue
            number += 1
            while number < entry.seq and number in refilled:
                number += 1
            if entry.seq != number:
                yield Violation("I4", f"lane {lane}, offset {entry.offset}: sequence {entry.seq}, expected {number}")
                break
    for ce_id, times in Counter(entry.ce_id for entry in snapshot.published).items():
        if times > 1:
            yield Violation("I4", f"the outcome {ce_id} stands {times} times in the topic")


def _same_as_row(snapshot: Snapshot) -> Iterator[Violation]:
    """Each row has its record and each record its row, the same in every field."""
    rows: dict[Place, Outcome] = {(row.lane, row.seq): row for row in snapshot.rows}
    seen: set[Place] = set()
    for entry in snapshot.published:
        place = (entry.lane, entry.seq)
        seen.add(place)
        other = rows.get(place)
        if other is None:
            yield Violation("I4", f"the topic has {place} ({entry.ce_id}), the table has not")
        elif replace(entry, offset=None, refill=False) != other:
            yield Violation("I4", f"record and row of {place} differ: {entry} and {other}")
    for place, row in rows.items():
        if place not in seen:
            yield Violation("I4", f"the outcome {place} ({row.ce_id}) is not in the topic")


def _heads(snapshot: Snapshot) -> Iterator[Violation]:
    """The head of a lane counts its rows, and all of them are published."""
    counted = Counter(row.lane for row in snapshot.rows)
    for lane in snapshot.lanes:
        if lane.head_seq != counted[lane.lane]:
            yield Violation("I4", f"lane {lane.lane}: the head is {lane.head_seq}, rows are {counted[lane.lane]}")
        if lane.published_seq != lane.head_seq:
            yield Violation("I4", f"lane {lane.lane}: {lane.published_seq} of {lane.head_seq} are published")
        if lane.state != "ok":
            yield Violation("I8", f"lane {lane.lane} is {lane.state}")


def _ids(snapshot: Snapshot) -> Iterator[Violation]:
    """A first revision carries the outcome's id, and the lane follows from the key."""
    count = len(snapshot.lanes)
    for row in snapshot.rows:
        if row.revision == 1 and row.ce_id != row.outcome_id:
            yield Violation("I4", f"{row.lane}/{row.seq}: ce_id {row.ce_id} is not the outcome's id {row.outcome_id}")
        if count and row.lane != (murmur2(row.key.encode()) & 0x7FFFFFFF) % count:
            yield Violation("I4", f"{row.lane}/{row.seq}: the key {row.key} belongs to another lane")


def _order_of_causes(snapshot: Snapshot) -> Iterator[Violation]:
    """Outcomes of one key follow the order of their events, as far as these stand in one partition."""
    positions: dict[str, Position] = {
        f"event:{'/'.join(marker.identity)}": marker.position for marker in snapshot.markers
    }
    last: dict[tuple[int, str, int], int] = {}
    for row in sorted(snapshot.rows, key=lambda row: (row.lane, row.seq)):
        if row.cause not in positions:
            continue
        partition, offset = positions[row.cause]
        before = last.get((row.lane, row.key, partition), -1)
        if offset < before:
            yield Violation("I4", f"{row.lane}/{row.seq}: outcomes of {row.key} are not in the order of their events")
        last[row.lane, row.key, partition] = offset


def murmur2(data: bytes) -> int:
    """Return Kafka's hash of a key, written for the checker from the published algorithm."""
    value = 0x9747B28C ^ len(data)
    whole = len(data) - len(data) % 4
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * 0x5BD1E995 & 0xFFFFFFFF
        word = (word ^ word >> 24) * 0x5BD1E995 & 0xFFFFFFFF
        value = (value * 0x5BD1E995 & 0xFFFFFFFF) ^ word
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * 0x5BD1E995 & 0xFFFFFFFF
    value = (value ^ value >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    return value ^ value >> 15
