"""The bridge's metrics, each child bound once.

Rule: a label's values come from a fixed list, never from a request: a stranger must not be able to make time series.
The registry is the bridge's own, so that two bridges in one test do not add up.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from onceflow_producer.refusal import STATUS_OF

_PUBLISH_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class BridgeMetrics:
    """Everything that the bridge counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        requests = Counter(
            "onceflow_bridge_requests",
            "Webhook requests that were answered, by HTTP status.",
            ["status"],
            registry=self.registry,
        )
        self.requests = {status: requests.labels(str(status)) for status in {200, *STATUS_OF.values()}}
        refused = Counter(
            "onceflow_bridge_refused",
            "Webhook requests that were not taken, by failure code.",
            ["code"],
            registry=self.registry,
        )
        self.refused = {code: refused.labels(code) for code in STATUS_OF}
        self.publish_seconds = self._histogram(
            "onceflow_bridge_publish_seconds", "From handing an event to the producer to the broker's confirmation."
        )
        oversize = Counter(
            "onceflow_bridge_oversize",
            "Events refused for their size: alarm on any, Stripe gives up after three days.",
            ["stage"],
            registry=self.registry,
        )
        self.oversize_body = oversize.labels("body")
        self.oversize_record = oversize.labels("record")
        self.disconnects = self._counter(
            "onceflow_bridge_client_disconnects", "Senders that hung up before their body was complete."
        )
        self.late_reports = self._counter(
            "onceflow_bridge_late_reports", "Delivery reports that came after the request had been answered with 503."
        )
        self.renewals = self._counter(
            "onceflow_bridge_producer_renewals",
            "Producers replaced after a fatal error or a change of the topic limit.",
        )
        self.connections_refused = self._counter(
            "onceflow_bridge_connections_refused", "Connections closed at once because too many were open."
        )
        self.headers_timed_out = self._counter(
            "onceflow_bridge_headers_timed_out", "Connections closed because their headers did not arrive in time."
        )
        self.malformed_requests = self._counter(
            "onceflow_bridge_malformed_requests", "Requests that were not HTTP, answered with 400 by the server itself."
        )

    def _counter(self, name: str, documentation: str) -> Counter:
        return Counter(name, documentation, registry=self.registry)

    def _histogram(self, name: str, documentation: str) -> Histogram:
        return Histogram(name, documentation, buckets=_PUBLISH_SECONDS, registry=self.registry)

    def gauge(self, name: str, documentation: str, *, read: Callable[[], float]) -> None:
        """Register a gauge that is read when it is scraped, so that it costs nothing per request."""
        Gauge(name, documentation, registry=self.registry).set_function(read)
