"""What the duty shows.  The registry is the relay's own."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from prometheus_client import CollectorRegistry, Counter, Gauge

from onceflow_processor.retention.book import Line
from onceflow_processor.retention.needs import Kept


class RetentionMetrics:
    """Everything that the duty counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.deleted = Counter(
            "onceflow_retention_deleted", "Rows deleted for their age, by table.", ["table"], registry=registry
        )
        self.failures = Counter(
            "onceflow_retention_failures", "Looks that ended by a failure, by its code.", ["code"], registry=registry
        )
        self.kept_days = Gauge(
            "onceflow_retention_kept_days", "For how long rows are kept, by table; +Inf for ever.", ["table"],
            registry=registry,
        )  # fmt: skip
        self.oldest_marker_seconds = Gauge(
            "onceflow_retention_oldest_marker_seconds", "Age of the oldest marker at the last sweep.", registry=registry
        )
        self.swept_seconds = Gauge(
            "onceflow_retention_last_sweep_seconds",
            "How long ago the last sweep of the markers ended.",
            registry=registry,
        )

    def show_kept(self, kept: Kept) -> None:
        """Show what the settings and topics come to."""
        for table, days in (("inbox", kept.markers_days), ("outcome", kept.outcomes_days)):
            self.kept_days.labels(table).set(inf if days is None else days)

    def show(self, book: Iterable[Line]) -> None:
        """Show how far the duty has come."""
        for line in book:
            if line.name == "inbox":
                if line.oldest is not None:
                    self.oldest_marker_seconds.set((line.now - line.oldest).total_seconds())
                if line.swept_at is not None:
                    self.swept_seconds.set((line.now - line.swept_at).total_seconds())
