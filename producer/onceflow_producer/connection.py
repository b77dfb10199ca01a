"""The HTTP connection: uvicorn's, with the limits that it lacks.

Rule: a connection costs a bounded amount of memory for a bounded time before its request is known.  uvicorn has no
limit on open connections that have sent nothing, none on the length of headers and none on their time; a thousand
senders of one byte per ten seconds would hold it for ever.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from onceflow_producer.body import BODY_IS_HERE
from onceflow_producer.metrics import BridgeMetrics
from onceflow_producer.refusal import REFUSAL_ANSWERS
from onceflow_producer.request_head import HEADERS_BYTES_MAX
from onceflow_schemas.failure import Misconfigured

CONNECTIONS_MAX = 1_000
HEADERS_DEADLINE_SECONDS = 10.0
"""From opening a connection, or from the end of the last answer on it, to the end of the next headers."""
SWEEP_SECONDS = 1.0
KEEP_ALIVE_SECONDS = 5
OTHER_FILES = 256
"""What a bridge opens besides its HTTP connections: Kafka, metrics, logs."""


class ConnectionLimits:
    """Counts and ends connections; one per bridge."""

    def __init__(
        self,
        metrics: BridgeMetrics,
        *,
        connections_max: int = CONNECTIONS_MAX,
        headers_deadline_seconds: float = HEADERS_DEADLINE_SECONDS,
    ) -> None:
        self.metrics = metrics
        self.connections_max = connections_max
        self.headers_deadline_seconds = headers_deadline_seconds
        self.open: set[BoundedConnection] = set()

    def end_overdue(self, now: float) -> None:
        """Close each connection whose headers are overdue at this loop time."""
        for connection in list(self.open):
            if connection.headers_due_at is not None and connection.headers_due_at <= now:
                self.metrics.headers_timed_out.inc()
                connection.transport.abort()

    async def sweep_for_ever(self) -> None:
        """Look for overdue connections once per second, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.end_overdue(loop.time())


class BoundedConnection(HttpToolsProtocol):
    """One connection; ``headers_due_at`` is None while a request is being answered."""

    limits: ConnectionLimits
    """Set on the subclass that ``bounded_by`` makes: uvicorn constructs its protocols itself."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.headers_due_at: float | None = None
        self._header_bytes = 0
        self._in_body = False
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Take the connection, or close it when too many are open."""
        if len(self.limits.open) >= self.limits.connections_max:
            self._refused = True
            self.limits.metrics.connections_refused.inc()
            transport.abort()
            return
        super().connection_made(transport)
        self.limits.open.add(self)
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.limits.open.discard(self)
        self.headers_due_at = None
        if not self._refused:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser, and end a request whose headers do not end."""
        if self._refused:
            return
        began_in_body = self._in_body
        super().data_received(data)
        # The rest of a body that was answered early is thrown away by the parser and is no header, nor is a piece that only
        # begins in one: how much of it follows the body is not known, and a piece is bounded.
        in_headers = not (began_in_body or self._in_body)
        if self.headers_due_at is not None and in_headers and not self.transport.is_closing():
            self._header_bytes += len(data)
            if self._header_bytes > HEADERS_BYTES_MAX:
                self._refuse_headers()

    def on_headers_complete(self) -> None:
        """Start the request; its own deadlines hold from here on."""
        self.headers_due_at = None
        self._in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End the body."""
        self._in_body = False
        self.scope["state"][BODY_IS_HERE] = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request on this connection (unless one is in the pipeline)."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self._expect_headers()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP."""
        self.limits.metrics.malformed_requests.inc()
        super().send_400_response(msg)

    def _expect_headers(self) -> None:
        self.headers_due_at = self.loop.time() + self.limits.headers_deadline_seconds
        self._header_bytes = 0

    def _refuse_headers(self) -> None:
        answer = REFUSAL_ANSWERS["headers_too_large"]
        lines = [b"%b: %b" % (name, value) for name, value in answer.start["headers"]]
        head = b"\r\n".join([b"HTTP/1.1 431 Request Header Fields Too Large", *lines])
        self.limits.metrics.requests[431].inc()
        self.limits.metrics.refused["headers_too_large"].inc()
        self.transport.write(head + b"\r\n\r\n" + answer.body["body"])
        self.transport.close()


def allow_open_files(connections_max: int) -> None:
    """Raise this process's limit of open files as far as the connections need it.

    Without it a flood of connections would take the files that Kafka's own connections need.

    Raises:
        Misconfigured: the hard limit is too low.
    """
    needed = connections_max + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            message = f"{connections_max} connections need {needed} open files, and only {hard} are allowed"
            raise Misconfigured("settings_invalid", message, "Raise the limit (ulimit -n), or allow fewer connections.")
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def bounded_by(limits: ConnectionLimits) -> type[BoundedConnection]:
    """Return the protocol class that keeps these limits."""
    return type("LimitedConnection", (BoundedConnection,), {"limits": limits})
