"""The processor as a process: everything checked, then the two threads, then a clean end."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import structlog
from prometheus_client import CollectorRegistry, start_http_server
from psycopg import Connection

from onceflow_processor.admission import Rules
from onceflow_processor.attempt import AttemptSettings, limits_setter
from onceflow_processor.consume import ConsumeSettings, ConsumeThread
from onceflow_processor.database import connect, database_away
from onceflow_processor.deadline import Deadline
from onceflow_processor.failures.dead_letter_duty import DeadLetterDuty, DeadLetterOptions
from onceflow_processor.handler_run import HandlerSettings
from onceflow_processor.handlers import Handlers
from onceflow_processor.handoff import Handoff
from onceflow_processor.inputs.input_topic import InputTopic
from onceflow_processor.kafka_client import StartClient, admin_client
from onceflow_processor.log_view import LogView
from onceflow_processor.metrics import ProcessorMetrics
from onceflow_processor.operations.request import API_VERSION, RequestRules
from onceflow_processor.operations.wake import wake_up_over
from onceflow_processor.relay.lane_check import count_closed_lanes
from onceflow_processor.retention.store import read_known_from
from onceflow_processor.start_check import check_database, count_lanes
from onceflow_processor.worker import Worker, WorkerSettings
from onceflow_producer.lifetime import Lifetime, say_ready
from onceflow_schemas.attestation import AttestationKey
from onceflow_schemas.failure import Misconfigured, Unavailable
from onceflow_schemas.failure_course import RetryRules
from onceflow_schemas.outcome_record import HEADERS_BYTES_RESERVED
from onceflow_schemas.times import parse_time

START_SECONDS_MAX = 60.0
"""How long a start waits for a database or broker that is not there yet."""

START_WAIT_SECONDS = 0.5
LOCK_TIMEOUT_MS = 5_000
TRANSACTION_MARGIN_SECONDS = 15.0
REDRIVE_MARGIN_SECONDS = 10.0
"""So much longer than a transaction a redrive has its key leased: when somebody else may take it, the first one is over."""

CLOSE_SECONDS_MAX = 15.0
GARBAGE_THRESHOLD = 100_000
"""A batch holds tens of thousands of parsed objects that form no cycles; looking for cycles among them again and again
cost an eighth of the worker's time.  Cycles of a handler are still found, after so many objects that stayed."""

TRANSPORT_RISK = "whoever may write to this topic can forge events that move real money: keep its ACLs narrow"

log = structlog.get_logger("onceflow.processor")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorOptions:
    """Everything that the processor is told; nothing below reads the environment.

    Args:
        kafka: librdkafka properties of the consumer and the admin client.
        database_url: libpq connection string, untouched.
        deployment: the deployment's id, shared with the bridge.
        accounts: the accounts that it serves, its own first.
        mode: ``live`` or ``test``.
        topics: the event topics.
        inputs: what those topics carry whose records are not simply the bridge's.
        outcome_topic: the outcome topic; its size limit bounds outcomes.
        group: the consumer group.
        relay_group: the relay's pseudo group, whose cursor the lanes are compared with.
        handlers: the registry.
        attestation_keys: keys by id.
        horizon_days: how far back markers reach.
        start: ``earliest`` or a time in the records' form, for topics without a position.
        group_protocol: ``auto``, ``consumer`` or ``classic``.
        api_version: what operations are frozen with.
        read_objects: events may wait for a read at Stripe, which the workers of operations do.
        batch_records_max: records of one transaction.
        batch_bytes_max: bytes of one transaction.
        batch_seconds_max: handlers of one transaction may take this long before it is cut.
        handler_deadline_seconds: how long one handler may take.
        retry: how parked events are tried again.
        owner: shown in the progress rows.
        metrics_host: where metrics are served.
        metrics_port: 0 for a free port.
        state_file: written when ready.
        announce: called with what the state file says when ready.
        parent_pid: stop when this parent is gone.
        prepared: False behind a pooler in transaction mode.
        dead_letters: where quarantined records are published too; None for nowhere.
    """

    kafka: Mapping[str, object]
    database_url: str = field(repr=False)
    deployment: str
    accounts: tuple[str, ...]
    mode: str
    topics: tuple[str, ...]
    outcome_topic: str
    group: str
    relay_group: str
    handlers: Handlers
    attestation_keys: Mapping[str, AttestationKey] = field(repr=False)
    inputs: Sequence[InputTopic] = ()
    horizon_days: int = 35
    start: str = "earliest"
    group_protocol: str = "auto"
    api_version: str = API_VERSION
    read_objects: bool = False
    batch_records_max: int = 1_000
    batch_bytes_max: int = 16_777_216
    batch_seconds_max: float = 5.0
    handler_deadline_seconds: float = 10.0
    retry: RetryRules = field(default_factory=RetryRules)
    owner: str = ""
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 0
    state_file: Path | None = None
    announce: Callable[[Mapping[str, object]], None] | None = None
    parent_pid: int | None = None
    prepared: bool = True
    dead_letters: DeadLetterOptions | None = None

    def rules(self, accounts: frozenset[str], *, known_from: datetime | None, compacted: Collection[str] = ()) -> Rules:
        """Return the rules of admission.

        Args:
            accounts: that the database has frozen.
            known_from: what the database has deleted is older.
            compacted: topics of whose records Kafka removes some.
        """
        return Rules(
            deployment=self.deployment,
            accounts=accounts,
            mode=self.mode,
            keys=self.attestation_keys,
            horizon=timedelta(days=self.horizon_days),
            known_from=known_from,
            inputs={one.topic: replace(one, compacted=one.topic in compacted) for one in self.inputs},
        )


def run(options: ProcessorOptions) -> int:
    """Run the processor until it is told to stop; return 0.

    Raises:
        Misconfigured: it cannot start as it is set up.
        Unavailable: the database or the broker did not come up in time.
    """
    options.handlers.check()
    # What was loaded until now lives until the end and is not looked at again.
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD)
    with Lifetime(parent_pid=options.parent_pid) as lifetime:
        service = ProcessorService(options, lifetime)
        return service.run()


class ProcessorService:
    """One processor, or what runs events in its place."""

    def __init__(self, options: ProcessorOptions, lifetime: Lifetime) -> None:
        self._options = options
        self._lifetime = lifetime
        self._admin = admin_client(options.kafka)
        self._owner = options.owner or f"{os.uname().nodename}:{os.getpid()}"
        for one in options.inputs:
            if one.trust == "transport" and options.mode == "live":
                log.warning("live_input_trusts_transport", topic=one.topic, format=one.format, risk=TRANSPORT_RISK)

    def run(self) -> int:
        """Run until it is told to stop; return 0."""
        options = self._options
        start = None if options.start == "earliest" else _start_time(options.start)
        prepared = self.prepare()
        if prepared is None:
            log.info("processor_stopped", reason=self._lifetime.reason)
            return 0
        connection, settings = prepared
        registry = CollectorRegistry()
        metrics = ProcessorMetrics(registry)
        metrics.database_up.set(1)
        handoff = Handoff(records_max=2 * options.batch_records_max, bytes_max=2 * options.batch_bytes_max)
        consume = ConsumeThread(
            handoff,
            settings=ConsumeSettings(options.kafka, options.group, options.topics, options.group_protocol),
            rules=settings.rules,
            view=LogView(self._admin, start=start),
            count=lambda kind: metrics.trouble.labels(kind).inc(),
        )
        wake_up = wake_up_over(options.database_url, prepared=options.prepared)
        worker = Worker(
            handoff,
            settings=settings,
            open_database=self.open_checked,
            check_lanes=self._check_lanes,
            deadline=Deadline(options.handler_deadline_seconds),
            metrics=metrics,
            stopping=lambda: self._lifetime.stopping or consume.failure is not None,
            wait=self._lifetime.wait,
            wake=wake_up.wake,
        )
        server, _ = start_http_server(options.metrics_port, addr=options.metrics_host, registry=registry)
        dead_letters = None
        if options.dead_letters is not None:
            dead_letters = DeadLetterDuty(options.dead_letters, count=lambda kind: metrics.trouble.labels(kind).inc())
            dead_letters.start()
        consume.start()
        url = f"http://{options.metrics_host}:{server.server_port}/metrics"
        state = {"pid": os.getpid(), "metrics_url": url}
        say_ready(state, state_file=options.state_file, announce=options.announce)
        log.info("processor_ready", owner=self._owner, types=options.handlers.types())
        try:
            worker.run(connection)
        finally:
            wake_up.close()
            if dead_letters is not None:
                dead_letters.close()
            consume.stop()
            consume.join(CLOSE_SECONDS_MAX)
            server.shutdown()
        if consume.failure is not None:
            raise consume.failure
        log.info("processor_stopped", reason=self._lifetime.reason)
        return 0

    def prepare(self) -> tuple[Connection[Any], WorkerSettings] | None:
        """Wait for the dependencies, bounded in time, and learn what the settings depend on; None: asked to stop."""
        give_up_at = time.monotonic() + START_SECONDS_MAX
        broker = StartClient(self._options.kafka)
        while not self._lifetime.stopping:
            try:
                return self._try_prepare(broker)
            except (Unavailable, psycopg.OperationalError) as error:
                failure = error if isinstance(error, Unavailable) else database_away(error)
                left_seconds = give_up_at - time.monotonic()
                if left_seconds < 0:
                    raise failure from error
                self._tell_wait(failure, left_seconds=left_seconds)
                self._lifetime.wait(START_WAIT_SECONDS)
        return None

    def _tell_wait(self, failure: Unavailable, *, left_seconds: float) -> None:
        kafka = f"Kafka at {self._options.kafka.get('bootstrap.servers')}"
        log.warning(
            "waiting_for_dependency",
            code=failure.code,
            waiting_for={"broker_unavailable": kafka, "database_unavailable": "PostgreSQL"}.get(failure.code),
            reason=failure.message,
            gives_up_in_seconds=round(left_seconds),
        )

    def _try_prepare(self, broker: StartClient) -> tuple[Connection[Any], WorkerSettings]:
        options = self._options
        cluster, topics = broker.ask([*options.topics, options.outcome_topic])
        connection, version, accounts = self._open_safe()
        try:
            partitions = topics[options.outcome_topic].partitions
            lane_count = count_lanes(connection, outcome_topic=options.outcome_topic, partitions=partitions)
            self._check_lanes(connection)
            with connection.transaction():
                known_from = read_known_from(connection)
        except BaseException:
            connection.close()
            raise
        seconds = options.handler_deadline_seconds + options.batch_seconds_max + TRANSACTION_MARGIN_SECONDS
        return connection, WorkerSettings(
            rules=options.rules(
                accounts,
                known_from=known_from,
                compacted=[name for name, one in topics.items() if one.compacted],
            ),
            attempt=AttemptSettings(
                run=HandlerSettings(
                    handlers=options.handlers,
                    lane_count=lane_count,
                    value_bytes_max=topics[options.outcome_topic].message_bytes_max - HEADERS_BYTES_RESERVED,
                    batch_seconds_max=options.batch_seconds_max,
                    set_limits=limits_setter(
                        lock_timeout_ms=LOCK_TIMEOUT_MS,
                        transaction_ms_max=int(seconds * 1000),
                        server_version=version,
                    ),
                    stopping=lambda: self._lifetime.stopping,
                    requests=RequestRules(accounts, options.handlers.effects, options.api_version, options.deployment),
                    read_objects=options.read_objects,
                ),
                cluster_id=cluster,
                retry=options.retry,
            ),
            owner=self._owner,
            batch_records_max=options.batch_records_max,
            batch_bytes_max=options.batch_bytes_max,
            topics=options.topics,
            redrive_lease_seconds=seconds + REDRIVE_MARGIN_SECONDS,
        )

    def _open_safe(self) -> tuple[Connection[Any], int, frozenset[str]]:
        options = self._options
        connection = connect(options.database_url, application_name="onceflow-processor", prepared=options.prepared)
        try:
            version, accounts = check_database(
                connection, deployment=options.deployment, accounts=options.accounts, mode=options.mode
            )
        except BaseException:
            connection.close()
            raise
        return connection, version, accounts

    def open_checked(self) -> Connection[Any]:
        """Open a connection for the worker: the database behind it may have been put back meanwhile."""
        connection, _, _ = self._open_safe()
        try:
            self._check_lanes(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_lanes(self, connection: Connection[Any]) -> int:
        """Compare the lanes with the topic; return how many hand out no sequence."""
        return count_closed_lanes(
            connection,
            kafka=self._options.kafka,
            outcome_topic=self._options.outcome_topic,
            group=self._options.relay_group,
        )


def _start_time(text: str) -> datetime:
    try:
        return parse_time(text)
    except ValueError as error:
        message = f"processor.start is {text!r}: write earliest, or a time such as 2026-01-01T00:00:00.000000Z"
        raise Misconfigured("settings_invalid", message) from error
