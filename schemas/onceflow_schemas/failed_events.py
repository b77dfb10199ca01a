"""Codes of decisions about events that failed, and of dead letters.

Rule: as in ``onceflow_schemas.failure``, which takes this table in.
"""

from __future__ import annotations

from onceflow_schemas.failure_kind import kinds

FAILED_EVENT_FAILURES = kinds(
    "operator",
    (
        "skipped",
        "A person left the event out while it was parked.",
        "Nothing; to run it after all: `onceflow quarantine retry` with `--decided`.",
    ),
    (
        "event_quarantined",
        "A record that is trusted by now belongs to an event that another record has brought to quarantine.",
        "Decide about that one: `onceflow quarantine show` of the event's id.",
    ),
    (
        "failed_event_missing",
        "No parked or quarantined event has this id.",
        "`list` of the same command tells the ids.",
    ),
    (
        "decision_refused",
        "What became of the event leaves nothing to decide so.",
        "`onceflow parked show` and `onceflow quarantine show` tell how an event stands, and the next step.",
    ),
    (
        "dead_letter_too_large",
        "A quarantined record is larger than the dead-letter topic allows.",
        "It is kept in onceflow.quarantine alone; raise max.message.bytes of the topic for the next ones.",
    ),
    (
        "dead_letter_refused",
        "The dead-letter topic does not take a quarantined record: without a key where it is compacted, or by a policy.",
        "It is kept in onceflow.quarantine alone; `onceflow topics plan` tells how the topic should be.",
    ),
)
