"""HTTP/1.1 for calls that must not happen twice: one request, one answer, and whether a byte of the request has left us.

Rule: ``NoAnswer.sent`` is False only when nothing was written.  Nothing is repeated here, no redirect is followed, and one
deadline bounds the whole exchange, however slowly its bytes drip.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from onceflow_processor.operations.senders.connection import Answer, Broken, Connection

IDLE_SECONDS_MAX = 15.0
"""A kept connection is not used after this pause: the other side may be closing it just when we write."""
IDLE_CONNECTIONS_MAX = 64
REQUEST_BYTES_MAX = 1 << 20
ANSWER_BYTES_MAX = 8 << 20
"""Head and body together.  A page of 100 Stripe objects has less than 1 MB."""
RETRY_AFTER_SECONDS_MAX = 3600.0
HAPPY_EYEBALLS_SECONDS = 0.25

_URL = re.compile(r"[!-~]+")
_LINE_BREAKER = re.compile(r"[\r\n\0]")
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "accept-encoding"})
"""Headers that say how the request is framed: what a caller gives for them is left out."""
_PORTS = {"http": 80, "https": 443}


class NoAnswer(Exception):
    """There is no whole answer.

    Attributes:
        reason: a stable word: ``unwritable``, ``unreachable``, ``deadline``, ``closed``, ``unreadable``, ``too_large``.
        sent: whether a byte of the request may have left us.
    """

    def __init__(self, reason: str, detail: str, *, sent: bool) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.sent = sent


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a connection leads to."""

    scheme: str
    host: str
    port: int


class Exchange:
    """Requests over kept connections.  Belongs to the event loop that it is first used in.

    Args:
        connect_seconds: for name, connection and TLS together.
        total_seconds: for the whole exchange, from the call to the last byte of the answer.
        authorities: file with the certificates that are trusted; None takes the system's.
    """

    def __init__(self, *, connect_seconds: float, total_seconds: float, authorities: str | None = None) -> None:
        assert 0 < connect_seconds <= total_seconds
        self.total_seconds = total_seconds
        self._connect_seconds = connect_seconds
        self._authorities = authorities
        self._tls: ssl.SSLContext | None = None
        self._idle: dict[_Place, list[Connection]] = {}
        self._swept_at = 0.0

    async def request(self, method: str, url: str, *, headers: Mapping[str, str], body: bytes = b"") -> Answer:
        """One request and its answer, whatever status it has.

        Raises:
            NoAnswer: there is no whole answer; ``sent`` tells whether the request may have arrived.
        """
        place, data = _written(method, url, headers=headers, body=body)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.total_seconds
        connection: Connection | None = None
        sent = False
        try:
            async with asyncio.timeout_at(deadline):
                connection = self._kept(place, loop.time()) or await self._connect(place)
                if loop.time() >= deadline:  # we were stopped meanwhile: who asked for this call has long given it up
                    raise NoAnswer("deadline", "the time was over before anything was sent", sent=False)
                sent = True
                answer = await connection.exchange(data)
        except TimeoutError as error:
            raise NoAnswer("deadline", f"no whole answer within {self.total_seconds:g} s", sent=sent) from error
        except Broken as error:
            raise NoAnswer(error.reason, error.detail, sent=True) from error
        finally:
            if connection is not None:
                self._put_back(place, connection, loop.time())
        return answer

    async def close(self) -> None:
        """Close the kept connections and give the loop a turn to do it."""
        for connections in self._idle.values():
            for connection in connections:
                connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)

    def _kept(self, place: _Place, now: float) -> Connection | None:
        connections = self._idle.get(place, [])
        while connections:
            connection = connections.pop()
            if _is_fresh(connection, now):
                return connection
            connection.abort()
        return None

    def _put_back(self, place: _Place, connection: Connection, now: float) -> None:
        if now - self._swept_at >= IDLE_SECONDS_MAX:
            self._sweep(now)
        connections = self._idle.setdefault(place, [])
        if connection.usable and len(connections) < IDLE_CONNECTIONS_MAX:
            connection.idle_since = now
            connections.append(connection)
        else:
            connection.abort()

    def _sweep(self, now: float) -> None:
        """Let go of what has become too old: places that are called once are many, and each would keep its connection."""
        self._swept_at = now
        for place, connections in list(self._idle.items()):
            for connection in connections:
                if not _is_fresh(connection, now):
                    connection.abort()
            self._idle[place] = [one for one in connections if _is_fresh(one, now)]
            if not self._idle[place]:
                del self._idle[place]

    async def _connect(self, place: _Place) -> Connection:
        if place.scheme == "https" and self._tls is None:
            self._tls = ssl.create_default_context(cafile=self._authorities)
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(answer_bytes_max=ANSWER_BYTES_MAX),
                    place.host,
                    place.port,
                    ssl=self._tls if place.scheme == "https" else None,
                    happy_eyeballs_delay=HAPPY_EYEBALLS_SECONDS,
                )
        except (
            OSError,
            UnicodeError,
        ) as error:  # refused, no such name, time over, TLS refused, a name nobody can have
            detail = f"no connection to {place.host}:{place.port} ({type(error).__name__})"
            raise NoAnswer("unreachable", detail, sent=False) from error
        return connection


def _is_fresh(connection: Connection, now: float) -> bool:
    return connection.usable and now - connection.idle_since < IDLE_SECONDS_MAX


def retry_after_seconds(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """What ``Retry-After`` asks for, as seconds (at most ``RETRY_AFTER_SECONDS_MAX``) or as a date; None without a usable one."""
    text = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", text):
        return min(float(text), RETRY_AFTER_SECONDS_MAX)
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return min(max((until - (now or datetime.now(UTC))).total_seconds(), 0.0), RETRY_AFTER_SECONDS_MAX)


def _written(method: str, url: str, *, headers: Mapping[str, str], body: bytes) -> tuple[_Place, bytes]:
    """Where to, and the request's bytes."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: {parts.netloc.rpartition('@')[2]}",
            "Accept-Encoding: identity",
            *(f"{name}: {value}" for name, value in headers.items() if name.lower() not in _OURS),
            *([f"Content-Length: {len(body)}"] if body or method == "POST" else []),
        ]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    except (KeyError, ValueError) as error:  # another scheme; a port, a character that cannot be
        raise NoAnswer("unwritable", f"the request cannot be written ({type(error).__name__})", sent=False) from error
    if not parts.hostname or not _URL.fullmatch(url) or any(_LINE_BREAKER.search(line) for line in lines):
        raise NoAnswer(
            "unwritable", "the request has no host, or a character in its head that cannot be there", sent=False
        )
    if len(head) + len(body) > REQUEST_BYTES_MAX:
        raise NoAnswer("unwritable", f"the request has more than {REQUEST_BYTES_MAX} bytes", sent=False)
    return _Place(parts.scheme, parts.hostname, port), head + body
