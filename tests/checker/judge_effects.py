"""I2 and I3: each event that should have an effect has it once, and nothing else has one.

Rule: what should happen is read from the event's own body by the table of ``expectation``; what did happen is read
from the rows.  Marker, outcomes, facts and the user's own rows must tell the same story.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.checker.expectation import ONCE, OUTCOME_TYPES
from tests.checker.judge_events import States
from tests.checker.snapshot import EventEntry, Outcome, Snapshot
from tests.checker.violation import Violation

Effects = dict[str, list[Outcome]]
"""Outcome rows by cause."""


def cause_of(entry: EventEntry) -> str:
    """Return the cause text of an event's outcomes."""
    assert entry.identity is not None
    return f"event:{'/'.join(entry.identity)}"


def judge_effects(snapshot: Snapshot, states: States) -> list[Violation]:
    """Return the broken invariants about outcomes, facts and the user's rows."""
    by_cause: Effects = {}
    for row in snapshot.rows:
        by_cause.setdefault(row.cause, []).append(row)
    handled = [
        entry
        for entry in snapshot.events
        if states.by_position.get(entry.position) in {"processed", "ignored"} and entry.identity is not None
    ]
    violations = [
        *_per_event(handled, by_cause, states),
        *_per_fact(handled, by_cause, snapshot),
        *_without_marker(by_cause, states),
        *_users_rows(handled, snapshot, states),
    ]
    if snapshot.guard_rows:
        violations.append(Violation("I3", f"{snapshot.guard_rows} rows are left in batch_guard"))
    return violations


def _per_event(handled: list[EventEntry], by_cause: Effects, states: States) -> Iterator[Violation]:
    """I3: a processed event has its outcome; an ignored one has none and no handler."""
    for entry in handled:
        state = states.by_position[entry.position]
        found = by_cause.get(cause_of(entry), [])
        if (state == "processed") != entry.handled:
            yield Violation("I3", f"{entry.identity} ({entry.type}) is {state}")
        if entry.wanted is None:
            if found:
                yield Violation("I3", f"{entry.identity} ({entry.type}) has {len(found)} outcomes, expected none")
            continue
        legal = {0, 1} if entry.wanted.once else {1}
        if len(found) not in legal:
            code = "I3" if not found else "I2"
            yield Violation(code, f"{entry.identity} ({entry.type}) has {len(found)} outcomes, expected one")
        for row in found:
            if (row.type, row.key) != (entry.wanted.type, entry.wanted.key):
                yield Violation("I3", f"{entry.identity} has the outcome {row.type} {row.key}, expected {entry.wanted}")
            if not set(entry.wanted.data) <= set(row.numbers):
                yield Violation("I3", f"{entry.identity}: the outcome says {row.numbers}, expected {entry.wanted.data}")


def _per_fact(handled: list[EventEntry], by_cause: Effects, snapshot: Snapshot) -> Iterator[Violation]:
    """I2: all events of one fact have one outcome together, and the fact's row names the event that has it."""
    facts = {(fact.namespace, fact.key): fact.cause for fact in snapshot.facts}
    groups: dict[tuple[str, str], list[EventEntry]] = {}
    namespaces = {OUTCOME_TYPES[event_type]: namespace for event_type, namespace in ONCE.items()}
    for entry in handled:
        if entry.wanted is not None and entry.wanted.once:
            groups.setdefault((namespaces[entry.wanted.type], entry.wanted.key), []).append(entry)
    for fact, entries in groups.items():
        causes = [cause_of(entry) for entry in entries]
        with_effect = [cause for cause in causes for _ in by_cause.get(cause, [])]
        if len(with_effect) != 1:
            code = "I3" if not with_effect else "I2"
            yield Violation(code, f"the fact {fact} has {len(with_effect)} outcomes, of {len(causes)} events")
        if facts.get(fact) not in with_effect:
            yield Violation("I3", f"the fact {fact} names {facts.get(fact)}, its outcome {with_effect}")
    for fact in facts:
        if fact not in groups:
            yield Violation("I3", f"the fact {fact} stands without a processed event")


def _without_marker(by_cause: Effects, states: States) -> Iterator[Violation]:
    """I3: no outcome without the marker of its cause; those of operations are judged in ``judge_operations``."""
    processed = {
        f"event:{'/'.join(marker.identity)}" for marker in states.markers.values() if marker.state == "processed"
    }
    for cause, rows in by_cause.items():
        if cause not in processed and not cause.startswith("operation:"):
            yield Violation("I3", f"{len(rows)} outcomes of {cause} stand without a processed marker")


def _users_rows(handled: list[EventEntry], snapshot: Snapshot, states: States) -> Iterator[Violation]:
    """I2, I3: the user's own table has one row per processed event."""
    if snapshot.effects is None:
        return
    found = Counter(snapshot.effects)
    due = {
        entry.identity[2] for entry in handled if entry.identity and states.by_position[entry.position] == "processed"
    }
    for event_id in sorted(due - set(found)):
        yield Violation("I3", f"{event_id} is processed, but the user's table has no row of it")
    for event_id, times in sorted(found.items()):
        if event_id not in due:
            yield Violation("I3", f"the user's table has a row of {event_id}, which is not processed")
        elif times > 1:
            yield Violation("I2", f"the user's table has {times} rows of {event_id}")
