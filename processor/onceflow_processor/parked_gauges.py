"""What the gauges show of parked events: of the whole database, whichever process is asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from psycopg import Connection

from onceflow_processor.metrics import ProcessorMetrics
from onceflow_schemas.sql import queries

LOOK_SECONDS = 10.0
COUNT_MAX = 100_000

_SQL = queries("parking")


class ParkedGauges:
    """Sets the gauges from time to time, by one bounded query."""

    def __init__(self, metrics: ProcessorMetrics, *, connection: Callable[[], Connection[Any]]) -> None:
        self._metrics = metrics
        self._connection = connection
        self._look_at = 0.0

    def turn(self) -> None:
        """Ask again when it is time.

        Raises:
            psycopg.Error: the database is away.
        """
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_SECONDS
        connection = self._connection()
        with connection.transaction():
            row = connection.execute(_SQL["parked_overview"], {"count_max": COUNT_MAX}).fetchone()
        assert row is not None, "counts are always there"
        events, retry, quarantined, reading, overdue_seconds = row
        self._metrics.parked_events.set(events)
        for reason, keys in (("retry", retry), ("quarantined", quarantined), ("reading", reading)):
            self._metrics.parked_keys.labels(reason).set(keys)
        self._metrics.parked_overdue_seconds.set(max(0.0, overdue_seconds))
