"""The codes of events that wait: what their handlers met or asked for.

Rule: as for every code: a public contract with a next step.
"""

from __future__ import annotations

from onceflow_schemas.failure_kind import kinds

PARKING_FAILURES = kinds(
    "operator",
    (
        "dependency_failed",
        "A call of the handler failed for a reason that passes, again and again.",
        "Bring the service back that the handler calls; the event is tried again by itself, and quarantined after too many tries.",
    ),
    (
        "retry_asked",
        "The handler asked for a later retry (RetryIn).",
        "Look at its reason; the event is tried again by itself, and quarantined after too many tries.",
    ),
    (
        "quarantine_asked",
        "The handler asked for a person (Quarantine).",
        "Look at its reason, do what it says, and decide: retry or skip.",
    ),
    (
        "handler_missing",
        "A handler that the event failed in is not registered in the processor that tried it again.",
        "Start the processors with that handler; where it is gone for good, skip the event, then retry it from quarantine with --decided.",
    ),
)
