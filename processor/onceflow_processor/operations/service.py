"""The workers of operations as a process: everything checked, then callers and ledger, then a clean end."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import structlog
from prometheus_client import CollectorRegistry, start_http_server
from psycopg import Connection

from onceflow_processor.attempt import limits_setter
from onceflow_processor.database import connect, database_away
from onceflow_processor.deadline import Deadline
from onceflow_processor.handlers import Handlers
from onceflow_processor.kafka_client import StartClient
from onceflow_processor.operations.callback import CallbackSettings
from onceflow_processor.operations.callers import CHECK_SECONDS_MAX, Callers
from onceflow_processor.operations.ledger import LEASE_SECONDS_MAX, LedgerSettings
from onceflow_processor.operations.metrics import OperatorMetrics
from onceflow_processor.operations.request import API_VERSION, RequestRules
from onceflow_processor.operations.senders.sender import Sender
from onceflow_processor.operations.settlement import ROUND_SECONDS_MAX
from onceflow_processor.operations.waiting import Waiting
from onceflow_processor.operations.worker import Connections, Worker, WorkerSettings
from onceflow_processor.reads.metrics import ReadMetrics
from onceflow_processor.reads.read_store import ReadStoreSettings
from onceflow_processor.reads.reader import Reader
from onceflow_processor.reads.stripe_reads import StripeReads
from onceflow_processor.relay.lane_check import count_closed_lanes
from onceflow_processor.start_check import check_database, count_lanes
from onceflow_producer.lifetime import Lifetime, say_ready
from onceflow_schemas.failure import Misconfigured, Unavailable
from onceflow_schemas.operations.limits import LIMITS, Limits
from onceflow_schemas.outcome_record import HEADERS_BYTES_RESERVED

START_SECONDS_MAX = 60.0
"""How long a start waits for a database or broker that is not there yet."""

START_WAIT_SECONDS = 0.5
LEASE_MARGIN_SECONDS = 5.0
"""A lease outlasts the longest call by so much: the check before it, and writing down what it proved."""

KEY_HOURS = 24.0
"""Stripe may forget a key after so many hours."""

LOCK_TIMEOUT_MS = 5_000
TRANSACTION_MARGIN_SECONDS = 15.0
GARBAGE_THRESHOLD = 100_000
"""Rows and answers form no cycles."""

log = structlog.get_logger("onceflow.operations")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOptions:
    """Everything that the workers are told; nothing below reads the environment.

    Args:
        kafka: librdkafka properties, for the look at the outcome topic.
        database_url: libpq connection string, untouched.
        deployment: the deployment's id.
        accounts: the accounts whose operations are carried out, its own first.
        mode: ``live`` or ``test``.
        outcome_topic: the outcome topic; its size limit bounds outcomes.
        relay_group: the relay's pseudo group, whose cursor the lanes are compared with.
        handlers: the registry, whose effects are known here.
        senders: by kind of call.
        reads: what reads at Stripe for events that wait for it; None reads nothing.
        concurrency: calls on their way at a time.
        lease_seconds: how long a dead worker is waited for.
        api_version: what operations are frozen with that callbacks ask for.
        requests_per_second: calls to Stripe per account, of all workers together.
        burst: calls that may be made at once after a pause.
        limits: safe window and waits.
        poll_seconds: how often an idle worker looks by itself.
        callback_deadline_seconds: how long one settled callback may take.
        owner: who we are; another one for each process.
        metrics_host: where metrics are served.
        metrics_port: 0 for a free port.
        state_file: written when ready.
        announce: called with what the state file says when ready.
        parent_pid: stop when this parent is gone.
        prepared: False behind a pooler in transaction mode.
    """

    kafka: Mapping[str, object] = field(repr=False)
    database_url: str = field(repr=False)
    deployment: str
    accounts: tuple[str, ...]
    mode: str
    outcome_topic: str
    relay_group: str
    handlers: Handlers
    senders: Mapping[str, Sender] = field(repr=False)
    reads: StripeReads | None = field(repr=False, default=None)
    owner: str
    concurrency: int = 32
    lease_seconds: float = 35.0
    api_version: str = API_VERSION
    requests_per_second: float = 20.0
    burst: int = 20
    limits: Limits = LIMITS
    poll_seconds: float = 1.0
    callback_deadline_seconds: float = 10.0
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 0
    state_file: Path | None = None
    announce: Callable[[Mapping[str, object]], None] | None = None
    parent_pid: int | None = None
    prepared: bool = True

    @property
    def call_seconds_max(self) -> float:
        """The longest time from the database's word that a call may be made to its end."""
        return max(sender.seconds_max for sender in self.senders.values()) + CHECK_SECONDS_MAX


def run(options: OperatorOptions) -> int:
    """Carry out operations until told to stop; return 0.

    Raises:
        Misconfigured: it cannot start as it is set up.
        Unavailable: the database or the broker did not come up in time.
    """
    check(options)
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD)
    with Lifetime(parent_pid=options.parent_pid) as lifetime:
        return _Service(options, lifetime).run()


def check(options: OperatorOptions) -> None:
    """Refuse what cannot work, all at once.

    Raises:
        Misconfigured: ``handlers_invalid``, ``settings_invalid``.
    """
    options.handlers.check()
    # A lease is renewed every third of it, and a round of callbacks may come in between.
    callback_seconds = options.callback_deadline_seconds + ROUND_SECONDS_MAX
    shortest = max(options.call_seconds_max + LEASE_MARGIN_SECONDS, callback_seconds * 1.5 + LEASE_MARGIN_SECONDS)
    window_seconds = options.limits.safe_window.total_seconds()
    faults = []
    if options.lease_seconds < shortest:
        faults.append(
            f"operations.lease_seconds is {options.lease_seconds:g}: another worker would take an operation over while its "
            f"call is on its way; a good value is {shortest:g} or more, or shorter operations.call_seconds_max and "
            "operations.callback_deadline_seconds"
        )
    if options.lease_seconds > LEASE_SECONDS_MAX:
        faults.append(f"operations.lease_seconds must be at most {LEASE_SECONDS_MAX:g}")
    if window_seconds + options.lease_seconds >= KEY_HOURS * 3600:
        faults.append("operations.safe_window_hours must end before Stripe may forget a key: a good value is 20")
    if options.concurrency < 1 or options.burst < 1 or options.requests_per_second <= 0 or options.poll_seconds <= 0:
        faults.append(
            "operations.concurrency, burst, requests_per_second and poll_seconds must be above 0; good values are 32, 20, 20, 1"
        )
    if faults:
        raise Misconfigured("settings_invalid", "; ".join(faults), faults=tuple(faults))


class _Service:
    def __init__(self, options: OperatorOptions, lifetime: Lifetime) -> None:
        self._options = options
        self._lifetime = lifetime

    def run(self) -> int:
        options = self._options
        prepared = self._prepare()
        if prepared is None:
            log.info("operator_stopped", reason=self._lifetime.reason)
            return 0
        connections, settings = prepared
        registry = CollectorRegistry()
        waiting = Waiting()
        callers = Callers(options.senders, concurrency=options.concurrency, ring=waiting.ring)
        worker = Worker(
            callers,
            waiting,
            settings=settings,
            open_connections=self._open_checked,
            check_lanes=self._check_lanes,
            deadline=Deadline(options.callback_deadline_seconds),
            metrics=OperatorMetrics(registry),
            stopping=lambda: self._lifetime.stopping,
            wait=self._lifetime.wait,
        )
        reader = self._reader(settings.ledger, registry)
        server, thread = self._serve_metrics(registry)
        callers.start()
        if reader is not None:
            reader.start()
        url = f"http://{options.metrics_host}:{server.server_port}/metrics"
        say_ready({"pid": os.getpid(), "metrics_url": url}, state_file=options.state_file, announce=options.announce)
        log.info("operator_ready", owner=options.owner, effects=sorted(options.handlers.effects))
        if not options.handlers.effects:
            # Outcomes of applications are still moved into their lanes.
            log.warning("no_effects", hint='decorate a function with @handlers.effect("refund_fee")')
        try:
            worker.run(connections)
        finally:
            if reader is not None:
                reader.close()
            callers.close()
            waiting.close()
            server.shutdown()
            server.server_close()
            thread.join()
        log.info("operator_stopped", reason=self._lifetime.reason)
        return 0

    def _serve_metrics(self, registry: CollectorRegistry) -> Any:
        options = self._options
        try:
            return start_http_server(options.metrics_port, addr=options.metrics_host, registry=registry)
        except OSError as error:
            place = f"{options.metrics_host}:{options.metrics_port}"
            raise Misconfigured("port_in_use", f"the metrics cannot be served on {place}") from error

    def _prepare(self) -> tuple[Connections, WorkerSettings] | None:
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
                log.warning(
                    "waiting_for_dependency",
                    code=failure.code,
                    reason=failure.message,
                    gives_up_in_seconds=round(left_seconds),
                )
                self._lifetime.wait(START_WAIT_SECONDS)
        return None

    def _try_prepare(self, broker: StartClient) -> tuple[Connections, WorkerSettings]:
        options = self._options
        _, topics = broker.ask([options.outcome_topic])
        connections, version, accounts = self._open()
        try:
            partitions = topics[options.outcome_topic].partitions
            lane_count = count_lanes(connections.ledger, outcome_topic=options.outcome_topic, partitions=partitions)
            self._check_lanes(connections.ledger)
        except BaseException:
            connections.close()
            raise
        value_bytes_max = topics[options.outcome_topic].message_bytes_max - HEADERS_BYTES_RESERVED
        return connections, self._settings(
            version=version, accounts=accounts, lane_count=lane_count, value_bytes_max=value_bytes_max
        )

    def _settings(
        self, *, version: int, accounts: frozenset[str], lane_count: int, value_bytes_max: int
    ) -> WorkerSettings:
        options = self._options
        transaction_seconds = options.callback_deadline_seconds + TRANSACTION_MARGIN_SECONDS
        set_limits = limits_setter(
            lock_timeout_ms=LOCK_TIMEOUT_MS,
            transaction_ms_max=int(transaction_seconds * 1000),
            server_version=version,
        )
        return WorkerSettings(
            ledger=LedgerSettings(
                owner=options.owner,
                mode=options.mode,
                accounts=options.accounts,
                effects=tuple(sorted(options.handlers.effects)),
                kinds=tuple(sorted(options.senders)),
                lease_seconds=options.lease_seconds,
                call_seconds_max=options.call_seconds_max,
                requests_per_second=options.requests_per_second,
                burst=options.burst,
                limits=options.limits,
                set_limits=set_limits,
            ),
            callbacks=CallbackSettings(
                effects=options.handlers.effects,
                rules=RequestRules(accounts, options.handlers.effects, options.api_version, options.deployment),
                lane_count=lane_count,
                value_bytes_max=value_bytes_max,
                set_limits=set_limits,
            ),
            concurrency=options.concurrency,
            poll_seconds=options.poll_seconds,
        )

    def _reader(self, ledger: LedgerSettings, registry: CollectorRegistry) -> Reader | None:
        reads = self._options.reads
        if reads is None:
            return None
        settings = ReadStoreSettings(
            owner=ledger.owner,
            mode=ledger.mode,
            accounts=reads.accounts,
            lease_seconds=ledger.lease_seconds,
            requests_per_second=ledger.requests_per_second,
            burst=ledger.burst,
            set_limits=ledger.set_limits,
        )
        return Reader(reads, settings=settings, open_connection=self._open_reader, metrics=ReadMetrics(registry))

    def _open_reader(self) -> Connection[Any]:
        options = self._options
        connection = connect(options.database_url, application_name="onceflow-reader", prepared=options.prepared)
        try:
            check_database(connection, deployment=options.deployment, accounts=options.accounts, mode=options.mode)
        except BaseException:
            connection.close()
            raise
        return connection

    def _open(self) -> tuple[Connections, int, frozenset[str]]:
        options = self._options
        url, prepared = options.database_url, options.prepared
        ledger = connect(url, application_name="onceflow-operator", prepared=prepared)
        try:
            version, accounts = check_database(
                ledger, deployment=options.deployment, accounts=options.accounts, mode=options.mode
            )
            side = connect(url, application_name="onceflow-operator-side", prepared=prepared, autocommit=True)
        except BaseException:
            ledger.close()
            raise
        return Connections(ledger, side), version, accounts

    def _open_checked(self) -> Connections:
        """Open connections for the worker: the database behind them may have been put back meanwhile."""
        connections, _, _ = self._open()
        try:
            self._check_lanes(connections.ledger)
        except BaseException:
            connections.close()
            raise
        return connections

    def _check_lanes(self, connection: Connection[Any]) -> int:
        """Compare the lanes with the topic; return how many hand out no sequence."""
        return count_closed_lanes(
            connection,
            kafka=self._options.kafka,
            outcome_topic=self._options.outcome_topic,
            group=self._options.relay_group,
        )
