"""The relay's metrics.

Rule: a label's values come from fixed lists and from the lanes, never from data.  The registry is the relay's own, so
that two relays in one test do not add up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from onceflow_processor.relay.lane_store import LaneRow

STOPPED_PREFIX: Final = "stopped:"
LANE_STATES: Final = ("ok", "behind", "recovering", "stopped")
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)

TransactionResult = Literal["committed", "refused", "failed", "uncertain"]


class RelayMetrics:
    """Everything that the relay counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.active = Gauge("onceflow_relay_active", "1 while this relay holds the lease.", registry=self.registry)
        self.terms = Counter("onceflow_relay_terms", "Terms begun: acquisitions of the lease.", registry=self.registry)
        self.failures = Counter(
            "onceflow_relay_failures", "Terms that ended by a failure, by its code.", ["code"], registry=self.registry
        )
        self.transactions = Counter(
            "onceflow_relay_transactions", "Kafka transactions, by how they ended.", ["result"], registry=self.registry
        )
        self.transaction_seconds = Histogram(
            "onceflow_relay_transaction_seconds",
            "From begin to the answer of a Kafka transaction.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.published = Counter(
            "onceflow_relay_published", "Outcomes published, by lane.", ["lane"], registry=self.registry
        )
        self.imported = Counter(
            "onceflow_relay_imported",
            "Outcomes that came back from the topic, by lane.",
            ["lane"],
            registry=self.registry,
        )
        self.backlog = Gauge(
            "onceflow_relay_backlog_outcomes", "Outcomes that wait to be published, by lane.", ["lane"],
            registry=self.registry,
        )  # fmt: skip
        self.lane_state = Gauge(
            "onceflow_relay_lane_state", "1 for the state that a lane is in.", ["lane", "state"], registry=self.registry
        )

    def count_transaction(self, result: TransactionResult, seconds: float) -> None:
        """Count one Kafka transaction."""
        self.transactions.labels(result).inc()
        self.transaction_seconds.observe(seconds)

    def show_lanes(self, rows: Iterable[LaneRow]) -> None:
        """Show how the database sees the lanes."""
        for row in rows:
            self.backlog.labels(row.lane).set(row.head - row.published)
            shown = "stopped" if row.state.startswith(STOPPED_PREFIX) else row.state
            for state in LANE_STATES:
                self.lane_state.labels(row.lane, state).set(state == shown)
