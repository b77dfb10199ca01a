"""The metrics of reads.

Rule: a label's values come from fixed lists, never from data.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

RESULTS = ("read", "gone", "part", "later", "not_permitted", "limited", "failed", "fenced", "incomplete")


class ReadMetrics:
    """What an operator sees of reads."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "onceflow_object_reads", "Requests that read something at Stripe, by what came of them.", ["result"],
            registry=registry,
        )  # fmt: skip
        for result in RESULTS:
            self.requests.labels(result)
        self.waiting = Gauge(
            "onceflow_object_reads_waiting", "Reads that events wait for, of the whole database.", registry=registry
        )
        self.oldest_seconds = Gauge(
            "onceflow_object_reads_oldest_seconds", "Age of the oldest of them.", registry=registry
        )
        self.not_permitted = Gauge(
            "onceflow_object_reads_not_permitted", "Those that the account's key may not do.", registry=registry
        )
        self.trouble = Counter(
            "onceflow_object_reads_trouble", "Rounds that failed and are tried again.", registry=registry
        )

    def show_waiting(self, count: int, *, oldest_seconds: float, not_permitted: int) -> None:
        """Show what waits."""
        self.waiting.set(count)
        self.oldest_seconds.set(oldest_seconds)
        self.not_permitted.set(not_permitted)
