"""What the reconciler counts.

Rule: the same words as in tables, commands and pages; an account is a label, an event never is.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge

from onceflow_reconciler.event_cycle import Told


class ReconcilerMetrics:
    """Counters of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._looks = Counter(
            "onceflow_reconciler_looks_total",
            "Looks at an account, by what they wait for.",
            ["account", "waits"],
            registry=registry,
        )
        self._listed = Counter(
            "onceflow_reconciler_listed_total", "Events that lists showed.", ["account"], registry=registry
        )
        self._missed = Counter(
            "onceflow_reconciler_missed_total", "Events that were missed.", ["account"], registry=registry
        )
        self._brought = Counter(
            "onceflow_reconciler_brought_total",
            "Missed events that were brought to the topic.",
            ["account"],
            registry=registry,
        )
        self._waiting = Gauge(
            "onceflow_reconciler_table_findings", "What the tables show now, by kind.", ["kind"], registry=registry
        )
        self.trouble = Counter(
            "onceflow_reconciler_trouble_total", "What kept it from looking.", ["code"], registry=registry
        )

    def show_tables(self, found: Mapping[str, int]) -> None:
        """Show how many of each kind the tables show now."""
        for kind, count in found.items():
            self._waiting.labels(kind).set(count)

    def note(self, account: str, told: Told) -> None:
        """Count one look."""
        self._looks.labels(account, told.waits or "").inc()
        self._listed.labels(account).inc(told.listed)
        self._missed.labels(account).inc(told.missed)
        self._brought.labels(account).inc(told.brought)
