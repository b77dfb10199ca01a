"""The maintenance duty: one thread of the active relay that deletes what is old, a little at a time.

Rule: it may be late, it may stop anywhere, it may run twice, and nobody notices: each slice is one short transaction with
the position of the next one in it.  It never holds what the hot path waits for, and rests at least as long as it worked.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import psycopg
import structlog

from onceflow_processor.relay.kafka_clients import Refusals
from onceflow_processor.relay.lane_store import connect
from onceflow_processor.retention.book import FIRST_TABLE, is_due
from onceflow_processor.retention.metrics import RetentionMetrics
from onceflow_processor.retention.needs import Kept, Wishes, decide
from onceflow_processor.retention.store import RetentionStore, Slice
from onceflow_processor.retention.topic_ages import read_topic_ages
from onceflow_producer.failpoint import hit
from onceflow_schemas.failure import Failure, LeaseLost, Misconfigured

ROLE: Final = "onceflow-retention"
PAGES_MAX: Final = 256
"""Pages of the inbox in one slice: 2 MB, some ten thousand markers."""
ROWS_MAX: Final = 5_000
"""Outcomes, or quarantined records, of one slice."""
READS_MAX: Final = 200
"""Reads of one slice: each may hold 4 MB."""
LOOK_SECONDS: Final = 60.0
"""So often it looks whether a sweep is due; also the pause after a failure."""
REST_SECONDS_MIN: Final = 0.05
STOP_SECONDS_MAX: Final = 10.0

_log = structlog.get_logger("onceflow.retention")


@dataclass(frozen=True, slots=True, kw_only=True)
class DutySettings:
    """What the duty needs to know.

    Args:
        kafka: librdkafka properties.
        database_url: given to libpq as it is.
        prepared: False behind a pooler without prepared statements.
        event_topics: the input topics.
        outcome_topic: of the lanes.
        wishes: the settings.
    """

    kafka: Mapping[str, object] = field(repr=False)
    database_url: str = field(repr=False)
    prepared: bool
    event_topics: Sequence[str]
    outcome_topic: str
    wishes: Wishes


def read_kept(settings: DutySettings, *, refusals: Refusals) -> Kept:
    """Ask the broker how long topics keep their records, and return how long rows are kept.

    Raises:
        Misconfigured: a setting is shorter than what a topic keeps; or ``broker_refused``.
        Unavailable: the broker did not answer, or a topic is not there yet.
    """
    ages = read_topic_ages(settings.kafka, [*settings.event_topics, settings.outcome_topic], refusals=refusals)
    outcomes = ages.pop(settings.outcome_topic)
    kept = decide(settings.wishes, events=list(ages.values()), outcomes=outcomes)
    if kept.faults:
        raise Misconfigured("settings_invalid", "; ".join(kept.faults), faults=kept.faults)
    return kept


class Duty:
    """The thread of one term.

    Args:
        settings: see there.
        lease_name: of the relay's lease.
        token: of this term.
        metrics: the process's own.
    """

    def __init__(self, settings: DutySettings, *, lease_name: str, token: int, metrics: RetentionMetrics) -> None:
        self._settings, self._lease_name, self._token, self._metrics = settings, lease_name, token, metrics
        self._stopping = threading.Event()
        # A daemon, since a process that ends must not wait for a server that does not answer.
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the slice in hand; what is left is left for the next term."""
        self._stopping.set()
        self._thread.join(STOP_SECONDS_MAX)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._serve()
            except LeaseLost:
                return
            except Failure as failure:
                self._metrics.failures.labels(failure.code).inc()
                _log.warning("retention_waits", code=failure.code, message=failure.message, hint=failure.hint)
            except psycopg.Error as error:
                # The database must never be the reason why a thread is gone and nobody sees it.
                self._metrics.failures.labels("database_unavailable").inc()
                _log.error("retention_waits", code="database_unavailable", message=str(error).partition("\n")[0])
            self._stopping.wait(random.uniform(LOOK_SECONDS / 2, LOOK_SECONDS))  # noqa: S311 - jitter needs no secrecy

    def _serve(self) -> None:
        """Sweep whenever it is due, over one connection, until something fails."""
        settings = self._settings
        connection = connect(settings.database_url, role=ROLE, prepared=settings.prepared)
        try:
            store = RetentionStore(connection, lease_name=self._lease_name, token=self._token)
            while not self._stopping.is_set():
                self._sweep_what_is_due(store)
                self._metrics.show(store.book())
                self._stopping.wait(LOOK_SECONDS)
        finally:
            connection.close()

    def _sweep_what_is_due(self, store: RetentionStore) -> None:
        lines = {line.name: line for line in store.book()}
        names = [FIRST_TABLE, "inbox", "object_read", *(f"outcome/{lane}" for lane in store.lanes())]
        due = [name for name in names if is_due(lines.get(name))]
        if not due:
            return
        # Asked before each sweep: a topic's retention may have been raised since the last one.
        kept = read_kept(self._settings, refusals=Refusals())
        self._metrics.show_kept(kept)
        for name in due:
            retire = self._retire(store, name, kept)
            if retire is not None:
                self._sweep(name, retire)

    def _retire(self, store: RetentionStore, name: str, kept: Kept) -> Callable[[], Slice] | None:
        """Return how a slice of this table is deleted; None where its rows stay for ever."""
        table, _, lane = name.partition("/")
        match table:
            case "quarantine":
                days = self._settings.wishes.quarantine_days
                return partial(store.retire_quarantine, keep_days=days, rows_max=ROWS_MAX)
            case "inbox" if kept.markers_days is not None:
                return partial(store.retire_markers, keep_days=kept.markers_days, pages_max=PAGES_MAX)
            case "object_read" if kept.markers_days is not None:
                return partial(store.retire_reads, keep_days=kept.markers_days, rows_max=READS_MAX)
            case "outcome" if kept.outcomes_days is not None:
                return partial(store.retire_outcomes, int(lane), keep_days=kept.outcomes_days, rows_max=ROWS_MAX)
            case _:
                return None

    def _sweep(self, name: str, retire: Callable[[], Slice]) -> None:
        deleted = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            hit("retention.before_slice")
            done = retire()
            hit("retention.after_slice")
            deleted += done.deleted
            self._metrics.deleted.labels(name.partition("/")[0]).inc(done.deleted)
            if done.swept:
                if deleted:
                    _log.info("retention_swept", table=name, deleted=deleted)
                return
            self._stopping.wait(max(REST_SECONDS_MIN, time.monotonic() - began))
