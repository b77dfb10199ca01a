"""The processor's metrics, by the words of the design; labels come from fixed sets only."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector

from onceflow_processor.attempt import Counts
from onceflow_processor.records import Partition

_BATCH_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class ProcessorMetrics:
    """What an operator sees of the processor."""

    def __init__(self, registry: CollectorRegistry) -> None:
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self.events = Counter(
            "onceflow_processor_events", "Events by the state they ended in.", ["state"], registry=registry
        )
        self.quarantined = Counter(
            "onceflow_processor_quarantined", "Records quarantined, by code.", ["code"], registry=registry
        )
        self.outcomes = Counter("onceflow_processor_outcomes", "Outcomes written.", registry=registry)
        self.operations = Counter("onceflow_processor_operations", "Operations asked for.", registry=registry)
        self.text_replaced = Counter(
            "onceflow_processor_text_replaced", "Events with NUL or lone surrogates replaced.", registry=registry
        )
        self.unknown_api_version = Counter(
            "onceflow_processor_unknown_api_version", "Events of an API version that this release does not know.",
            registry=registry,
        )  # fmt: skip
        self.ordered = Counter(
            "onceflow_processor_ordered", "Events of types with an ordered handler that were not plainly newer, by place.",
            ["place"], registry=registry,
        )  # fmt: skip
        self.ignored_by_handler = Counter(
            "onceflow_processor_ignored_by_handler", "Events of which a handler said that they are not its application's.",
            ["handler"], registry=registry,
        )  # fmt: skip
        self.redrives = Counter(
            "onceflow_processor_redrives", "Tries of parked events, by how they ended.", ["end"], registry=registry
        )
        self.parked_events = Gauge(
            "onceflow_processor_parked_events",
            "Events that wait in onceflow.parked, counted up to 100,000.",
            registry=registry,
        )
        self.parked_keys = Gauge(
            "onceflow_processor_parked_keys", "Order keys that wait, by what for, counted up to 100,000.", ["reason"],
            registry=registry,
        )  # fmt: skip
        self.parked_overdue_seconds = Gauge(
            "onceflow_processor_parked_overdue_seconds", "How long the key that has been due longest has been due.",
            registry=registry,
        )  # fmt: skip
        self.batch_seconds = Histogram(
            "onceflow_processor_batch_seconds", "Time of a batch.", buckets=_BATCH_SECONDS, registry=registry
        )
        self.batch_records = Histogram(
            "onceflow_processor_batch_records", "Records of a batch.",
            buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000), registry=registry,
        )  # fmt: skip
        self.trouble = Counter(
            "onceflow_processor_trouble", "Things that went wrong and heal alone, by kind.", ["kind"],
            registry=registry,
        )  # fmt: skip
        self.partitions = Gauge("onceflow_processor_partitions", "Partitions held.", registry=registry)
        self.stopped = Gauge(
            "onceflow_processor_partition_stopped", "1 while a partition stands still and needs a person.",
            ["topic", "partition", "code"], registry=registry,
        )  # fmt: skip
        self.waiting = Gauge(
            "onceflow_processor_partition_waiting", "1 while a partition waits for a handler or a lane, and tries again.",
            ["topic", "partition"], registry=registry,
        )  # fmt: skip
        self.database_up = Gauge("onceflow_processor_database_up", "1 while the database answers.", registry=registry)
        self.lanes_closed = Gauge(
            "onceflow_processor_lanes_closed", "Lanes that hand out no sequence.", registry=registry
        )
        self.last_event_age_seconds = Gauge(
            "onceflow_processor_last_event_age_seconds",
            "Age of the last record of the last batch when it was committed.", registry=registry,
        )  # fmt: skip

    def waits(self, partition: Partition, *, is_waiting: bool) -> None:
        """Say whether a partition waits."""
        self.waiting.labels(partition.topic, str(partition.number)).set(int(is_waiting))

    def committed(self, counts: Counts) -> None:
        """Count what a committed transaction did."""
        for state in ("processed", "ignored", "parked", "duplicate"):
            number = getattr(counts, state)
            if number:
                self.events.labels(state).inc(number)
        for code, number in counts.quarantined.items():
            self.events.labels("quarantined").inc(number)
            self.quarantined.labels(code).inc(number)
        self.unknown_api_version.inc(sum(counts.unknown_versions.values()))
        for place, number in counts.ordered.items():
            self.ordered.labels(place).inc(number)
        for handler, number in counts.ignored_by.items():
            self.ignored_by_handler.labels(handler).inc(number)
        self.outcomes.inc(counts.outcomes)
        self.operations.inc(counts.operations)
        self.text_replaced.inc(counts.text_replaced)
