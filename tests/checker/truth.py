"""What a proof must say of a snapshot: every count and every difference, computed from the raw ledgers alone.

Rule: pure, and of its own: no product code, and nothing that the product has counted.  A proof that says anything else, be it too
much or too little, is wrong, also where both call the system sound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.checker.judge_events import states_of
from tests.checker.snapshot import Identity, Marker, Outcome, Snapshot

LISTED_MAX = 1_000
"""A proof lists so many differences, and counts all."""


@dataclass(frozen=True, slots=True)
class Truth:
    """The sums; ``differences`` by the names that a proof has for them."""

    events: int
    records: Mapping[str, int]
    written: int
    published: int
    differences: Mapping[str, int]


def truth_of(
    snapshot: Snapshot,
    listed: Collection[Identity],
    *,
    too_old: Collection[Identity] = (),
    elsewhere: Collection[Identity] = (),
) -> Truth:
    """Return what a proof of everything must say.

    Args:
        snapshot: the ledgers on our side.
        listed: what Stripe lists now.
        too_old: events that Stripe does not list any more, for their age.
        elsewhere: events whose marker names a topic that is gone.
    """
    states = states_of(snapshot)
    records = Counter(_state(snapshot, entry.partition, entry.offset, states.by_position) for entry in snapshot.events)
    waiting = {
        entry.identity
        for entry in snapshot.events
        if entry.identity is not None and not _is_passed(snapshot, entry.partition, entry.offset)
    }
    kept = {row.identity for row in snapshot.quarantine if row.identity is not None}
    known = {marker.identity for marker in snapshot.markers} | waiting | kept
    found: Counter[str] = Counter()
    found["record_without_state"] = records["without_state"]
    found["missed_event"] = len(set(listed) - known)
    found["event_not_listed"] = len(known - set(listed) - set(too_old))
    for marker in snapshot.markers:
        if marker.identity not in elsewhere and (wrong := _lacks_record(snapshot, marker, states.entries)):
            found[wrong] += 1
    # No log of ours is old enough for its retention.
    starts = {row.partition: row.log_start for row in snapshot.progress}
    found["records_deleted"] = len(
        {one.position[0] for one in snapshot.markers if one.identity not in elsewhere and _is_before(one, starts)}
    )
    found += _outcomes(snapshot)
    reached = {lane.lane: lane.published_seq for lane in snapshot.lanes}
    return Truth(
        events=len(known | set(listed)),
        records=dict(records),
        written=len(snapshot.rows),
        published=sum(1 for row in snapshot.rows if row.seq <= reached[row.lane]),
        differences={kind: count for kind, count in found.items() if count},
    )


def compare(proof: Mapping[str, Any], truth: Truth) -> list[str]:
    """Return where a proof (what ``onceflow verify --json`` wrote) does not say the truth."""
    said = proof["counts"]
    pairs = {
        "events": (proof["events"], truth.events),
        "records": (said["records"], truth.records),
        "outcomes written": (said["outcomes"]["written"], truth.written),
        "outcomes published": (said["outcomes"]["published"], truth.published),
        "unexplained": (proof["unexplained"], sum(truth.differences.values())),
    }
    if proof["unexplained"] <= LISTED_MAX:
        pairs["differences"] = (dict(Counter(one["kind"] for one in proof["differences"])), truth.differences)
    return [
        f"{name}: the proof says {told}, the truth is {is_so}" for name, (told, is_so) in pairs.items() if told != is_so
    ]


def _state(snapshot: Snapshot, partition: int, offset: int, states: Mapping[tuple[int, int], str]) -> str:
    if not _is_passed(snapshot, partition, offset):
        return "not_yet_due"
    return states.get((partition, offset), "without_state")


def _is_passed(snapshot: Snapshot, partition: int, offset: int) -> bool:
    return any(row.partition == partition and offset < row.next_offset for row in snapshot.progress)


def _is_before(marker: Marker, starts: Mapping[int, int]) -> bool:
    partition, offset = marker.position
    return offset < starts.get(partition, 0)


def _lacks_record(snapshot: Snapshot, marker: Marker, entries: Mapping[tuple[int, int], Any]) -> str | None:
    """Say how a marker's record is missing: behind the log's end, or another one stands there."""
    partition, offset = marker.position
    for row in snapshot.progress:
        if row.partition == partition:
            if offset >= row.log_end:
                return "topic_lost_records"
            if offset < row.log_start:
                return None
    entry = entries.get(marker.position)
    return None if entry is not None and entry.identity == marker.identity else "marker_without_record"


def _outcomes(snapshot: Snapshot) -> Counter[str]:
    found: Counter[str] = Counter()
    rows = {(row.lane, row.seq) for row in snapshot.rows}
    seen = {(entry.lane, entry.seq) for entry in snapshot.published}
    reached = {lane.lane: lane.published_seq for lane in snapshot.lanes}
    found["outcome_not_published"] = sum(1 for lane, seq in rows - seen if seq <= reached[lane])
    found["outcome_without_row"] = sum(1 for entry in snapshot.published if (entry.lane, entry.seq) not in rows)
    found["outcome_foreign"] = len(snapshot.foreign)
    lanes: dict[int, list[Outcome]] = {}
    for entry in sorted(snapshot.published, key=lambda entry: entry.offset or 0):
        if not entry.refill:
            lanes.setdefault(entry.lane, []).append(entry)
    for lane, entries in lanes.items():
        times = Counter(entry.seq for entry in entries)
        found["outcome_doubled"] += sum(1 for count in times.values() if count > 1)
        steps = pairwise(entries)
        found["lane_gap"] += sum(
            1
            for before, entry in steps
            if entry.seq <= before.seq or any((lane, seq) not in seen for seq in range(before.seq + 1, entry.seq))
        )
    return found
