"""The bridge as a process: listen, serve, say when ready, drain, end.

Rule: the port is bound before anything else, so that two bridges never half-start on one address; a stop waits for
every report in hand, so that no 200 is said for an event that Kafka does not have.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
import uvicorn
from prometheus_client import start_http_server
from uvicorn.loops.auto import auto_loop_factory

from onceflow_producer.body import BodyBudget
from onceflow_producer.broker_watch import BrokerWatch
from onceflow_producer.connection import KEEP_ALIVE_SECONDS, ConnectionLimits, allow_open_files, bounded_by
from onceflow_producer.health import build_app
from onceflow_producer.lifetime import Lifetime, say_ready
from onceflow_producer.metrics import BridgeMetrics
from onceflow_producer.options import BridgeOptions, check_options
from onceflow_producer.publisher import Publisher
from onceflow_producer.rate import InvalidRequestRate
from onceflow_producer.webhook import WEBHOOK_PATH, Webhook, WebhookSettings
from onceflow_schemas.failure import Misconfigured

__all__ = ["BridgeOptions", "run"]

BACKLOG = 1_024
DRAIN_MARGIN_SECONDS = 2.0
"""A drain lasts at most the answer's deadline and this."""
READY_POLL_SECONDS = 0.05
GARBAGE_THRESHOLD = 20_000
"""Some hundred objects live per request in hand and form no cycles; looking for cycles among them was a thirtieth of all."""

_log = structlog.get_logger("onceflow.bridge")


def run(options: BridgeOptions) -> int:
    """Serve until asked to stop; return the exit code, 0 after a clean drain.

    Raises:
        Misconfigured: the options cannot be used (all faults at once), the port is taken, too few files may be open,
            or the broker refuses our credentials before the bridge was ever ready.
    """
    check_options(options)
    allow_open_files(options.connections_max)
    if options.state_file is not None:
        # Whoever waits for it must not find the one of an earlier run.
        options.state_file.unlink(missing_ok=True)
    with (
        Lifetime(parent_pid=options.parent_pid) as lifetime,
        _listener(options.host, options.port) as listener,
        _metrics_server(options.metrics_host, options.metrics_port) as (metrics, metrics_url),
    ):
        bridge = _Bridge(options, lifetime=lifetime, metrics=metrics, metrics_url=metrics_url)
        with asyncio.Runner(loop_factory=auto_loop_factory()) as runner:
            runner.run(bridge.serve(listener))
    _log.info("bridge_stopped", reason=lifetime.reason)
    return 0


@contextmanager
def _listener(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as failure:
        raise Misconfigured("port_in_use", f"cannot listen on {host} port {port}: {failure.strerror}") from failure
    with listener:
        yield listener


@contextmanager
def _metrics_server(host: str, port: int) -> Iterator[tuple[BridgeMetrics, str]]:
    metrics = BridgeMetrics()
    try:
        server, thread = start_http_server(port, host, registry=metrics.registry)
    except OSError as failure:
        message = f"cannot serve metrics on {host} port {port}: {failure.strerror}"
        raise Misconfigured("port_in_use", message) from failure
    try:
        yield metrics, f"http://{_in_url(host)}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class _Server(uvicorn.Server):
    """uvicorn's server under our signals: its own would not end at a second SIGTERM, and exit by signal."""

    def __init__(self, config: uvicorn.Config, lifetime: Lifetime) -> None:
        super().__init__(config)
        self._lifetime = lifetime

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def on_tick(self, counter: int) -> bool:
        self.should_exit = self.should_exit or self._lifetime.stopping
        return await super().on_tick(counter)


class _Bridge:
    """The parts of one bridge, made inside its event loop."""

    def __init__(self, options: BridgeOptions, *, lifetime: Lifetime, metrics: BridgeMetrics, metrics_url: str) -> None:
        self._options = options
        self._lifetime = lifetime
        self._metrics = metrics
        self._metrics_url = metrics_url

    async def serve(self, listener: socket.socket) -> None:
        """Serve until the lifetime ends, then drain."""
        options = self._options
        watch = BrokerWatch(
            options.kafka,
            topic=options.topic,
            body_bytes_max=options.body_bytes_max,
            message_timeout_ms=options.message_timeout_ms,
            metrics=self._metrics,
        )
        publisher = Publisher(watch, topic=options.topic, metrics=self._metrics, in_flight_max=options.in_flight_max)
        budget = BodyBudget(options.body_budget_bytes)
        limits = ConnectionLimits(self._metrics, connections_max=options.connections_max)
        server = self._server(watch, publisher, budget=budget, limits=limits)
        self._register_gauges(watch, publisher, budget=budget, limits=limits)
        watch.start()
        sweeping = asyncio.create_task(limits.sweep_for_ever())
        announcing = asyncio.create_task(self._announce(server, watch, listener=listener))
        # What lives until the end is not looked at again by each collection.
        gc.freeze()
        gc.set_threshold(GARBAGE_THRESHOLD)
        try:
            await server.serve(sockets=[listener])
        finally:
            sweeping.cancel()
            await publisher.close(within_seconds=options.answer_deadline_seconds)
        await announcing

    def _server(
        self, watch: BrokerWatch, publisher: Publisher, *, budget: BodyBudget, limits: ConnectionLimits
    ) -> _Server:
        options = self._options
        settings = WebhookSettings(
            secrets=options.secrets,
            tolerance_seconds=options.tolerance_seconds,
            body_bytes_max=options.body_bytes_max,
            read_deadline_seconds=options.read_deadline_seconds,
            answer_deadline_seconds=options.answer_deadline_seconds,
            default_account=options.default_account,
            default_mode=options.default_mode,
            deployment=options.deployment,
            topic=options.topic,
            attestation_keys=options.attestation_keys,
        )
        webhook = Webhook(
            settings,
            publisher=publisher,
            budget=budget,
            rate=InvalidRequestRate(options.invalid_rate),
            metrics=self._metrics,
        )
        config = uvicorn.Config(
            build_app(webhook, why_not_ready=lambda: watch.reasons),
            http=bounded_by(limits),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=int(options.answer_deadline_seconds + DRAIN_MARGIN_SECONDS),
        )
        return _Server(config, self._lifetime)

    def _register_gauges(
        self, watch: BrokerWatch, publisher: Publisher, *, budget: BodyBudget, limits: ConnectionLimits
    ) -> None:
        gauge = self._metrics.gauge
        gauge("onceflow_bridge_in_flight", "Events that wait for the broker.", read=lambda: publisher.in_flight)
        gauge("onceflow_bridge_ready", "1 when an event would be tried now.", read=lambda: float(not watch.reasons))
        gauge("onceflow_bridge_connections", "Open HTTP connections.", read=lambda: len(limits.open))
        gauge("onceflow_bridge_body_bytes", "Bytes of bodies in memory.", read=lambda: budget.held_bytes)

    async def _announce(self, server: _Server, watch: BrokerWatch, *, listener: socket.socket) -> None:
        """Say that the bridge is ready, for the first time; refuse to go on without credentials."""
        host, port = listener.getsockname()[:2]
        url = f"http://{_in_url(host)}:{port}"
        _log.info("bridge_listening", url=url, metrics_url=self._metrics_url, path=WEBHOOK_PATH)
        while watch.reasons or not server.started:
            refused = next((reason for reason in watch.reasons if reason.code == "broker_refused"), None)
            if refused is not None:
                self._lifetime.stop("misconfigured")
                raise Misconfigured("broker_refused", refused.detail)
            if self._lifetime.stopping:
                return
            await asyncio.sleep(READY_POLL_SECONDS)
        state = {"pid": os.getpid(), "url": url, "metrics_url": self._metrics_url}
        say_ready(state, state_file=self._options.state_file, announce=self._options.announce)
