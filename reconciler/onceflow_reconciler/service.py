"""The reconciler as a process: one works, others wait for its lease; a look at a time, until it is told to stop.

Rule: whatever fails costs the look in hand, and is tried again; what is done under the lease is checked against it first.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Self

import psycopg
import structlog
from prometheus_client import CollectorRegistry, start_http_server
from psycopg import Connection

from onceflow_processor.database import connect, first_line
from onceflow_processor.kafka_client import StartClient, TopicFacts
from onceflow_processor.log_reader import LogReader
from onceflow_processor.relay.lease import Lease
from onceflow_processor.start_check import check_database
from onceflow_producer.lifetime import Lifetime, say_ready
from onceflow_reconciler.account_cycle import AccountCycle, Looked
from onceflow_reconciler.event_cycle import EventCycle
from onceflow_reconciler.finding_store import count_open
from onceflow_reconciler.known_events import Backlog
from onceflow_reconciler.ledger_checks import look_at_tables
from onceflow_reconciler.ledger_look import LedgerLook
from onceflow_reconciler.metrics import ReconcilerMetrics
from onceflow_reconciler.object_cycle import ObjectCycle
from onceflow_reconciler.options import ReconcilerOptions
from onceflow_reconciler.republish import Republisher
from onceflow_reconciler.retiring import retire
from onceflow_reconciler.stripe_lists import StripeLists
from onceflow_reconciler.topic_checks import look_at_topics
from onceflow_schemas.failure import Failure, LeaseLost, Misconfigured, Unavailable

BACKLOG_SECONDS_MAX: Final = 120.0
RETRY_SECONDS: Final = 2.0
ROLE: Final = "onceflow-reconciler"
WORKS_HINT: Final = (
    "The service looks by itself, once in `reconciler.cycle_seconds`: `onceflow findings list` shows what it found; "
    "`--dry-run` looks beside it."
)

log = structlog.get_logger("onceflow.reconciler")


def run(options: ReconcilerOptions) -> int:
    """Reconcile until told to stop; return 0.

    Raises:
        Misconfigured: it cannot start as it is set up.
    """
    registry = CollectorRegistry()
    metrics = ReconcilerMetrics(registry)
    try:
        server, thread = start_http_server(options.metrics_port, addr=options.metrics_host, registry=registry)
    except OSError as error:
        place = f"{options.metrics_host}:{options.metrics_port}"
        raise Misconfigured("port_in_use", f"the metrics cannot be served on {place}") from error
    url = f"http://{options.metrics_host}:{server.server_port}/metrics"
    try:
        with Lifetime(parent_pid=options.parent_pid) as lifetime:
            _Service(options, lifetime, metrics=metrics).run(url)
            log.info("reconciler_stopped", reason=lifetime.reason)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    return 0


def look_once(options: ReconcilerOptions, *, dry_run: bool) -> tuple[dict[str, Looked], int]:
    """Look at every account once, and at the ledgers when it is time; return what was found by account, and in the ledgers.

    Raises:
        LeaseLost: another reconciler works.
        Failure, psycopg.Error: nothing can be said.
    """
    with Lifetime(parent_pid=options.parent_pid) as lifetime:
        return _Service(options, lifetime, metrics=ReconcilerMetrics(CollectorRegistry())).once(dry_run=dry_run)


def bring(options: ReconcilerOptions, events: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], str]:
    """Read events at Stripe by their ids, by account, and bring them to the event topic; twice harms nothing.

    Return why some can never be brought, by account and id.

    Raises:
        NotReadable: Stripe does not show one of them.
        Failure: the broker does not have them.
    """
    with Lifetime(parent_pid=options.parent_pid) as lifetime:
        connection = connect(options.database_url, application_name=ROLE, prepared=options.prepared, autocommit=True)
        with connection, _Tools(options, connection, wait=lifetime.wait, check=_nothing) as tools:
            refused: dict[tuple[str, str], str] = {}
            for account, ids in events.items():
                told = tools.republisher.publish(account, [tools.lists.event(account, one) for one in ids])
                refused |= {(account, event_id): why for event_id, why in told.items()}
            return refused


class _Service:
    def __init__(self, options: ReconcilerOptions, lifetime: Lifetime, *, metrics: ReconcilerMetrics) -> None:
        self._options = options
        self._lifetime = lifetime
        self._metrics = metrics
        self._ready = False
        self._has_worked = False

    def run(self, metrics_url: str) -> None:
        while not self._lifetime.stopping:
            try:
                self._serve(metrics_url)
            except (Failure, psycopg.Error) as error:
                if isinstance(error, Misconfigured) and not (self._has_worked and error.code == "topic_missing"):
                    raise
                # A topic that was there and is gone: whoever deleted it may be about to make it again.
                code = error.code if isinstance(error, Failure) else "database_unavailable"
                self._metrics.trouble.labels(code).inc()
                log.warning("reconciler_waits", reason=first_line(error))
                self._lifetime.wait(RETRY_SECONDS)

    def once(self, *, dry_run: bool) -> tuple[dict[str, Looked], int]:
        with self._open(dry_run=dry_run) as connection:
            lease = self._lease(connection)
            # A look that changes nothing may be taken beside one that works.
            if not dry_run and not lease.acquire():
                raise LeaseLost("fenced", "another reconciler works now", WORKS_HINT)
            check = _nothing if dry_run else partial(_hold, lease)
            try:
                with _Tools(self._options, connection, wait=self._lifetime.wait, check=check) as tools:
                    cycle = self._cycle(connection, tools, check, dry_run=dry_run)
                    if not dry_run:
                        look_at_tables(connection, self._options.patience)
                        look_at_topics(connection, tools.topics)
                    looked = {account: cycle.look(account) for account in self._options.accounts}
                    if dry_run:
                        return looked, 0
                    self._retire(connection, lease)
                    return looked, self._look_at_ledgers(connection, check)
            finally:
                lease.release()

    def _serve(self, metrics_url: str) -> None:
        with self._open() as connection:
            lease = self._lease(connection)
            self._say_ready(metrics_url)
            while not self._lifetime.stopping:
                if not lease.acquire():
                    self._lifetime.wait(self._options.lease_ttl_seconds / 2)
                    continue
                try:
                    check = partial(_hold, lease)
                    with _Tools(self._options, connection, wait=self._lifetime.wait, check=check) as tools:
                        self._has_worked = True
                        cycle = self._cycle(connection, tools, check, dry_run=False)
                        self._look_again_and_again(connection, cycle, lease, tools=tools)
                finally:
                    lease.release()

    def _look_again_and_again(
        self, connection: Connection[Any], cycle: AccountCycle, lease: Lease, *, tools: _Tools
    ) -> None:
        while not self._lifetime.stopping and not tools.are_outdated():
            begun = time.monotonic()
            look_at_tables(connection, self._options.patience)
            look_at_topics(connection, tools.topics)
            self._look(cycle, self._options.accounts)
            self._look_at_ledgers(connection, partial(_hold, lease))
            self._retire(connection, lease)
            self._metrics.show_open(count_open(connection))
            lease.keep()
            rest = self._options.cycle_seconds * random.uniform(0.9, 1.1)  # noqa: S311 - jitter needs no secrecy
            while (left := begun + rest - time.monotonic()) > 0 and not self._lifetime.wait(min(1.0, left)):
                lease.keep()

    def _look(self, cycle: AccountCycle, accounts: Iterable[str]) -> None:
        for account in accounts:
            looked = cycle.look(account)
            self._metrics.note(account, looked)
            if not looked.is_clean:
                log.info(
                    "looked",
                    account=account,
                    missed=looked.events.missed,
                    drifts=looked.objects.drifts,
                    waits=looked.waits,
                )

    def _look_at_ledgers(self, connection: Connection[Any], check: Callable[[], None]) -> int:
        options = self._options
        if options.ledgers is None:
            return 0
        return LedgerLook(
            connection,
            options.ledgers,
            open_connection=self._connect,
            period_seconds=options.ledger_seconds,
            first_seconds=options.first_seconds,
            check=check,
        ).look()

    def _retire(self, connection: Connection[Any], lease: Lease) -> None:
        try:
            retire(connection, lease, name=self._lease_name, findings_days=self._options.findings_days)
        except Unavailable as error:
            # What is not deleted now is deleted later.
            self._metrics.trouble.labels(error.code).inc()
            log.warning("retention_waits", code=error.code, message=error.message, hint=error.hint)

    def _cycle(
        self, connection: Connection[Any], tools: _Tools, check: Callable[[], None], *, dry_run: bool
    ) -> AccountCycle:
        options = self._options
        common: dict[str, Any] = {
            "mode": options.mode,
            "rules": options.rules,
            "first_seconds": options.first_seconds,
            "check": check,
        }
        events = EventCycle(
            connection,
            tools.lists,
            tools.backlog,
            republisher=None if dry_run else tools.republisher,
            wait=self._lifetime.wait,
            **common,
        )
        objects = ObjectCycle(connection, tools.lists, deployment=options.deployment, dry_run=dry_run, **common)
        return AccountCycle(
            connection, tools.lists, events=events, objects=objects, mode=options.mode, check=check, dry_run=dry_run
        )

    def _open(self, *, dry_run: bool = False) -> Connection[Any]:
        options = self._options
        connection = self._connect()
        try:
            check_database(
                connection,
                deployment=options.deployment,
                accounts=options.accounts,
                mode=options.mode,
                dry_run=dry_run,
            )
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self) -> Connection[Any]:
        options = self._options
        return connect(options.database_url, application_name=ROLE, prepared=options.prepared, autocommit=True)

    @property
    def _lease_name(self) -> str:
        return f"reconciler:{self._options.deployment}"

    def _lease(self, connection: Connection[Any]) -> Lease:
        options = self._options
        return Lease(
            connection,
            name=self._lease_name,
            owner=options.owner,
            ttl_seconds=options.lease_ttl_seconds,
            clock=time.monotonic,
        )

    def _say_ready(self, metrics_url: str) -> None:
        if not self._ready:
            self._ready = True
            options = self._options
            told = {"pid": os.getpid(), "metrics_url": metrics_url}
            say_ready(told, state_file=options.state_file, announce=options.announce)
            log.info("reconciler_ready", owner=options.owner, accounts=options.accounts)


def _hold(lease: Lease) -> None:
    """Renew the lease; raises when it is lost."""
    lease.keep()
    lease.check()


def _nothing() -> None:
    """Who changes nothing needs no lease."""


class _Tools:
    """Clients of one term; a context manager that lets go of them.

    Whoever waits for another side calls ``check`` meanwhile, so that the term lasts as long as the work.
    """

    def __init__(
        self,
        options: ReconcilerOptions,
        connection: Connection[Any],
        *,
        wait: Callable[[float], object],
        check: Callable[[], None],
    ) -> None:
        self._start = StartClient(options.kafka)
        self.topics = topics = self._ask_topics(list(dict.fromkeys((options.topic, *options.event_topics))))
        self.lists = StripeLists(
            options.accesses,
            api_base=options.api_base,
            api_version=options.api_version,
            requests_per_second=options.requests_per_second,
            connect_seconds=options.connect_seconds,
            total_seconds=options.total_seconds,
            wait=wait,
            tick=check,
        )
        self.backlog = Backlog(
            lambda: LogReader(options.kafka, group=options.group, deadline_seconds=BACKLOG_SECONDS_MAX, tick=check),
            topics=topics,
            inputs=options.inputs,
            connection=connection,
        )
        self.republisher = Republisher(
            options.kafka,
            topic=options.topic,
            keys=options.attestation_keys,
            deployment=options.deployment,
            mode=options.mode,
            record_bytes_max=topics[options.topic].message_bytes_max,
        )

    def are_outdated(self) -> bool:
        """Tell whether a topic is another one now: what is known of its positions then belongs to one that is gone."""
        try:
            return self._ask_topics(list(self.topics)) != self.topics
        except Unavailable:
            # A broker that is away hinders nobody from looking at Stripe and at the tables.
            return False

    def _ask_topics(self, topics: list[str]) -> dict[str, TopicFacts]:
        _, found = self._start.ask(topics)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.republisher.close()
        self.lists.close()
