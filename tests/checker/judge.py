"""The verdict on one snapshot: every broken invariant as a code and a sentence, and the counts.

Rule: pure.  A snapshot goes in, values come out; whoever wants to know whether this judge sees a fault plants it in
a snapshot.  The codes are the invariants of the design: I1 nothing accepted is lost, I2 one effect per fact, I3 all
or none, I4 the outcome topic is dense and exact, I5 progress passes nothing, I6 nothing changes afterwards, I8 it
settles, I9 nothing unverified and no secret.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.checker import judge_effects, judge_events, judge_outcomes
from tests.checker.snapshot import ANSWERED, Snapshot
from tests.checker.violation import Violation

SHOWN_MAX = 25


@dataclass(frozen=True, slots=True)
class Counts:
    """The sums, named as in the demo's last line."""

    sent: int
    answered: int
    records: int
    distinct: int
    processed: int
    ignored: int
    quarantined: int
    parked: int
    duplicates: int
    written: int
    published: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """All violations and the counts."""

    violations: tuple[Violation, ...]
    counts: Counts

    def codes(self) -> set[str]:
        """The invariants that are broken."""
        return {violation.code for violation in self.violations}

    def __str__(self) -> str:
        shown = [str(violation) for violation in self.violations[:SHOWN_MAX]]
        if len(self.violations) > SHOWN_MAX:
            shown.append(f"... and {len(self.violations) - SHOWN_MAX} more")
        return "\n".join([str(self.counts), *(shown or ["nothing is broken"])])


def judge(snapshot: Snapshot) -> Verdict:
    """Judge one snapshot of a system that should be quiet."""
    violations = [Violation("I8", snapshot.not_quiet)] if snapshot.not_quiet is not None else []
    states = judge_events.states_of(snapshot)
    violations += judge_events.judge_events(snapshot, states)
    violations += judge_effects.judge_effects(snapshot, states)
    violations += judge_outcomes.judge_outcomes(snapshot)
    violations += [Violation("I9", f"{hit.where} holds the canary {hit.canary!r}") for hit in snapshot.hits]
    return Verdict(tuple(violations), count(snapshot, states))


def judge_pair(earlier: Snapshot, later: Snapshot) -> list[Violation]:
    """Judge what may never change between two snapshots of one system (I6): a write with an old epoch or token would."""
    return list(_changed(earlier, later))


def _changed(earlier: Snapshot, later: Snapshot) -> Iterator[Violation]:
    markers = {marker.identity: marker for marker in later.markers}
    for marker in earlier.markers:
        now = markers.get(marker.identity)
        # Only what was parked gets another state, once its turn has come; who it is and where it stood never change.
        if now != marker and not (
            now is not None and marker.state == "parked" and replace(now, state="parked") == marker
        ):
            yield Violation("I6", f"the marker {marker.identity} changed to {now}")
    rows = {(row.lane, row.seq): row for row in later.rows}
    for row in earlier.rows:
        if rows.get((row.lane, row.seq)) != row:
            yield Violation("I6", f"the outcome {row.lane}/{row.seq} changed")
    published = {(entry.lane, entry.offset): entry for entry in later.published}
    for entry in earlier.published:
        if published.get((entry.lane, entry.offset)) != entry:
            yield Violation("I6", f"the outcome topic changed at {entry.lane}/{entry.offset}")
    reached = {row.partition: row for row in later.progress}
    for before in earlier.progress:
        after = reached.get(before.partition)
        if after is None or after.next_offset < before.next_offset or after.epoch < before.epoch:
            yield Violation("I6", f"progress of partition {before.partition} went back: {before} to {after}")
    facts = set(later.facts)
    yield from (Violation("I6", f"the fact {fact} changed") for fact in earlier.facts if fact not in facts)


def count(snapshot: Snapshot, states: judge_events.States) -> Counts:
    """Return the sums over distinct events; a duplicate is a record, not an event."""
    final: dict[object, str] = {}
    for entry in snapshot.events:
        state = states.by_position.get(entry.position)
        name = entry.identity or entry.position
        if state is not None and state != "duplicate":
            final.setdefault(name, state)
    ends = list(final.values())
    return Counts(
        sent=len(snapshot.deliveries),
        answered=sum(1 for delivery in snapshot.deliveries if delivery.status == ANSWERED),
        records=len(snapshot.events),
        distinct=len({entry.identity or entry.position for entry in snapshot.events}),
        processed=ends.count("processed"),
        ignored=ends.count("ignored"),
        quarantined=ends.count("quarantined"),
        parked=ends.count("parked"),
        duplicates=sum(1 for state in states.by_position.values() if state == "duplicate"),
        written=len(snapshot.rows),
        published=len(snapshot.published),
    )
