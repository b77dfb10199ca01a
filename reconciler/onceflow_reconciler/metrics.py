"""What the reconciler counts.

Rule: the same words as in tables, commands and pages; an account is a label, an event never is.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge

from onceflow_reconciler.account_cycle import Looked
from onceflow_schemas.findings import FINDING_KINDS


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
        self._drifts = Counter(
            "onceflow_reconciler_drifts_total", "Objects that disagree with operations.", ["account"], registry=registry
        )
        self._open = Gauge("onceflow_reconciler_open_findings", "Open findings, by kind.", ["kind"], registry=registry)
        self.trouble = Counter(
            "onceflow_reconciler_trouble_total", "What kept it from looking.", ["code"], registry=registry
        )

    def show_open(self, found: Mapping[str, int]) -> None:
        """Show how many findings of each kind are open; kinds that are not named have none."""
        for kind in FINDING_KINDS:
            self._open.labels(kind).set(found.get(kind, 0))

    def note(self, account: str, looked: Looked) -> None:
        """Count one look."""
        self._looks.labels(account, looked.waits or "").inc()
        self._listed.labels(account).inc(looked.events.listed)
        self._missed.labels(account).inc(looked.events.missed)
        self._brought.labels(account).inc(looked.events.brought)
        self._drifts.labels(account).inc(looked.objects.drifts)
