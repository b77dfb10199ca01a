"""The relay as a process: wait for the lease, serve terms, go on alone after every fault, drain, end.

Rule: a dependency that is away costs time and nothing else: the term ends, its lease is given up, and the next one
begins with a new connection and a new producer.  Only settings that cannot work end the process, at its start.
"""

from __future__ import annotations

import gc
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg
import structlog
from prometheus_client import start_http_server
from psycopg.rows import tuple_row

from onceflow_processor.relay.inspection import check_shape
from onceflow_processor.relay.kafka_clients import Refusals
from onceflow_processor.relay.lane_store import LaneStore, connect, database_failures
from onceflow_processor.relay.lease import TTL_SECONDS_MAX, TTL_SECONDS_MIN, Lease, lease_name
from onceflow_processor.relay.metrics import RelayMetrics
from onceflow_processor.relay.session import Session, SessionSettings
from onceflow_processor.relay.topic_tail import TopicTail
from onceflow_processor.retention.duty import Duty, DutySettings, read_kept
from onceflow_processor.retention.metrics import RetentionMetrics
from onceflow_processor.retention.needs import Wishes
from onceflow_processor.schema_check import check_schema
from onceflow_processor.start_check import check_safety
from onceflow_producer.failpoint import hit
from onceflow_producer.lifetime import Lifetime, say_ready
from onceflow_schemas.failure import Failure, LeaseLost, Misconfigured, Unavailable
from onceflow_schemas.sql import queries

ROLE: Final = "onceflow-relay"
START_SECONDS_MAX: Final = 10.0
BACKOFF_SECONDS_FIRST: Final = 0.2
BACKOFF_SECONDS_MAX: Final = 5.0
GARBAGE_THRESHOLD: Final = 500_000
"""A batch is tens of thousands of tuples that live shortly and form no cycles; looking for cycles among them cost a third
of the relay's time."""
STANDBY_SECONDS_MAX: Final = 1.0
"""A relay without the lease asks at least this often whether it has become free."""

_log = structlog.get_logger("onceflow.relay")


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayOptions:
    """How a relay runs.

    Args:
        kafka: librdkafka properties, ``bootstrap.servers`` among them.
        database_url: given to libpq as it is.
        deployment: id of the deployment, for ``ce_source``.
        outcome_topic: lane n is partition n of it.
        group: where cursors are kept; nobody else may commit there.
        transactional_id: one per outcome topic; a second relay with it fences the first.
        owner: who we are, for people who look at table ``lease``.
        lease_ttl_seconds: how long a dead relay is waited for; at least 2.
        batch_records_max: records in one Kafka transaction.
        poll_seconds: wait after a look that found nothing new.
        metrics_host: address of the metrics page.
        metrics_port: its port; 0 takes a free one.
        state_file: written when ready; None for nowhere.
        announce: called with what the state file says when ready.
        parent_pid: end when this process is no longer our parent; None to live without one.
        prepared: False behind a pooler without prepared statements.
        event_topics: whose retention says how long markers are needed.
        retention: how long rows are kept; None: nothing is deleted.
    """

    kafka: Mapping[str, object] = field(repr=False)
    database_url: str = field(repr=False)
    deployment: str
    outcome_topic: str
    group: str
    transactional_id: str
    owner: str
    lease_ttl_seconds: float = 8.0
    batch_records_max: int = 5_000
    poll_seconds: float = 0.03
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 0
    state_file: Path | None = None
    announce: Callable[[Mapping[str, object]], None] | None = None
    parent_pid: int | None = None
    prepared: bool = True
    event_topics: tuple[str, ...] = ()
    retention: Wishes | None = None


def run(options: RelayOptions) -> int:
    """Relay outcomes until asked to stop; return the exit code, 0 after a clean drain.

    Raises:
        Misconfigured: the options, the schema, the topic or the lanes cannot work, or the broker refuses our
            credentials, before the relay was ever ready.
    """
    _check(options)
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD)
    metrics = RelayMetrics()
    try:
        server, thread = start_http_server(options.metrics_port, options.metrics_host, registry=metrics.registry)
    except OSError as error:
        place = f"{options.metrics_host}:{options.metrics_port}"
        raise Misconfigured("port_in_use", f"the metrics cannot be served on {place}") from error
    try:
        with Lifetime(parent_pid=options.parent_pid) as lifetime:
            url = f"http://{options.metrics_host}:{server.server_port}/metrics"
            _Relay(options, lifetime=lifetime, metrics=metrics, metrics_url=url).serve()
            _log.info("relay_stopped", reason=lifetime.reason)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    return 0


def _check(options: RelayOptions) -> None:
    """Refuse numbers that cannot work, all at once."""
    faults = []
    if options.lease_ttl_seconds < TTL_SECONDS_MIN:
        faults.append(f"relay.lease_ttl_seconds must be at least {TTL_SECONDS_MIN:g}")
    if options.lease_ttl_seconds > TTL_SECONDS_MAX:
        faults.append(f"relay.lease_ttl_seconds must be at most {TTL_SECONDS_MAX:g}")
    if options.batch_records_max < 1:
        faults.append("relay.batch_records_max must be at least 1")
    if options.poll_seconds <= 0:
        faults.append("relay.poll_seconds must be above 0")
    if faults:
        raise Misconfigured("settings_invalid", "; ".join(faults), faults=tuple(faults))


class _Relay:
    """The loop around the terms."""

    def __init__(self, options: RelayOptions, *, lifetime: Lifetime, metrics: RelayMetrics, metrics_url: str) -> None:
        self._options, self._lifetime, self._metrics, self._metrics_url = options, lifetime, metrics, metrics_url
        self._ready = False
        self._failures = 0
        self._refusals = Refusals()
        self._retention_metrics = RetentionMetrics(metrics.registry)
        self._settings = SessionSettings(
            kafka=options.kafka,
            deployment=options.deployment,
            outcome_topic=options.outcome_topic,
            group=options.group,
            transactional_id=options.transactional_id,
            batch_records_max=options.batch_records_max,
        )

        self._duty = (
            None
            if options.retention is None
            else DutySettings(
                kafka=options.kafka,
                database_url=options.database_url,
                prepared=options.prepared,
                event_topics=options.event_topics,
                outcome_topic=options.outcome_topic,
                wishes=options.retention,
            )
        )

    def serve(self) -> None:
        """Serve terms until asked to stop."""
        while not self._lifetime.stopping:
            try:
                self._serve_once()
            except LeaseLost as failure:
                self._note(failure)
            except Misconfigured as failure:
                if not self._ready:
                    raise
                self._note(failure)
                self._wait_after_failure()
            except Failure as failure:
                if not self._ready and self._refusals.last is not None:
                    message = f"Kafka refused the relay's credentials: {self._refusals.last}"
                    raise Misconfigured("broker_refused", message) from failure
                self._note(failure)
                self._wait_after_failure()

    def _serve_once(self) -> None:
        options = self._options
        connection = connect(options.database_url, role=ROLE, prepared=options.prepared)
        try:
            with database_failures():
                check_schema(connection)
                check_safety(connection)
                self._check_deployment(connection)
            name = lease_name(options.outcome_topic)
            store = LaneStore(connection, lease_name=name)
            # Here too, so that a backlog is seen to grow while nothing can be published.
            self._metrics.show_lanes(store.lanes())
            self._check_topic(store)
            self._check_retention()
            self._say_ready()
            lease = Lease(
                connection,
                name=name,
                owner=options.owner,
                ttl_seconds=options.lease_ttl_seconds,
                clock=time.monotonic,
            )
            while not self._lifetime.stopping:
                if lease.acquire():
                    hit("relay.after_lease")
                    with database_failures():
                        self._check_deployment(connection)
                    with self._term(lease), self._deleting(lease):
                        self._serve_term(store, lease)
                else:
                    self._metrics.show_lanes(store.lanes())
                    self._lifetime.wait(min(STANDBY_SECONDS_MAX, options.lease_ttl_seconds / 2))
        finally:
            connection.close()

    def _check_deployment(self, connection: psycopg.Connection[Any]) -> None:
        """Refuse the outcomes of another deployment: under another transactional id we would not fence its relay.

        Before a processor has ever started there is no row, and nothing to publish either.
        """
        with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
            row = cursor.execute(queries("start")["deployment"]).fetchone()
        if row is not None and row[0] != self._options.deployment:
            message = f"the database belongs to deployment {row[0]}, not {self._options.deployment}"
            raise Misconfigured("database_other_deployment", message)

    @contextmanager
    def _term(self, lease: Lease) -> Iterator[None]:
        """Count a term, and give the lease up after it: another relay may be able to do what we cannot."""
        self._metrics.terms.inc()
        self._metrics.active.set(1)
        _log.info("relay_active", token=lease.token)
        try:
            yield
        finally:
            self._metrics.active.set(0)
            with suppress(Unavailable):
                lease.release()

    def _check_retention(self) -> None:
        """Refuse settings that delete too early; a broker that does not say is no reason not to publish."""
        if self._duty is None or self._ready:
            return
        try:
            self._retention_metrics.show_kept(read_kept(self._duty, refusals=self._refusals))
        except (Misconfigured, Unavailable) as failure:
            if failure.code == "settings_invalid":
                raise
            _log.warning("retention_waits", code=failure.code, message=failure.message, hint=failure.hint)

    @contextmanager
    def _deleting(self, lease: Lease) -> Iterator[None]:
        """Let the maintenance duty run beside the term."""
        if self._duty is None:
            yield
            return
        name = lease_name(self._options.outcome_topic)
        duty = Duty(self._duty, lease_name=name, token=lease.token, metrics=self._retention_metrics)
        duty.start()
        try:
            yield
        finally:
            duty.stop()

    def _serve_term(self, store: LaneStore, lease: Lease) -> None:
        session = Session(
            self._settings,
            store=store,
            lease=lease,
            metrics=self._metrics,
            refusals=self._refusals,
            clock=time.monotonic,
        )
        try:
            session.open()
            while not self._lifetime.stopping:
                moved = session.step()
                self._failures = 0
                if not moved:
                    self._lifetime.wait(self._options.poll_seconds)
        finally:
            session.close()

    def _check_topic(self, store: LaneStore) -> None:
        options = self._options
        with TopicTail(
            options.kafka,
            topic=options.outcome_topic,
            group=options.group,
            deadline_seconds=START_SECONDS_MAX,
            refusals=self._refusals,
        ) as tail:
            facts = tail.facts()
        check_shape(store.lanes(), facts, topic=options.outcome_topic)

    def _say_ready(self) -> None:
        if self._ready:
            return
        self._ready = True
        state = {"pid": os.getpid(), "metrics_url": self._metrics_url}
        say_ready(state, state_file=self._options.state_file, announce=self._options.announce)
        _log.info("relay_ready", metrics_url=self._metrics_url)

    def _note(self, failure: Failure) -> None:
        self._metrics.failures.labels(failure.code).inc()
        _log.warning("relay_term_ended", code=failure.code, message=failure.message, hint=failure.hint)

    def _wait_after_failure(self) -> None:
        """Wait longer after each failure in a row, with jitter, so that many relays do not come back at once."""
        limit = min(BACKOFF_SECONDS_FIRST * 2 ** min(self._failures, 10), BACKOFF_SECONDS_MAX)
        self._failures += 1
        self._lifetime.wait(random.uniform(limit / 2, limit))  # noqa: S311 - jitter needs no secrecy
