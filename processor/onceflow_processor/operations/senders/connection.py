"""One HTTP/1.1 connection: bytes to the transport, and an answer made of what comes back.

Rule: an answer is whole or it is ``Broken``.  A connection whose last exchange did not end cleanly is never used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import httptools

_INFORMATIONAL_BELOW = 200


class Headers(Mapping[str, str]):
    """Header names to values, whatever the case of the name; repeated ones are joined by a comma."""

    def __init__(self, pairs: list[tuple[bytes, bytes]]) -> None:
        self._values: dict[str, str] = {}
        for raw_name, raw_value in pairs:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            self._values[name] = f"{self._values[name]}, {value}" if name in self._values else value

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    headers: Headers
    body: bytes


class Broken(Exception):
    """The answer did not come whole."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Connection(asyncio.Protocol):
    """One exchange at a time.  ``on_...`` methods are called by the parser."""

    _pairs: list[tuple[bytes, bytes]]
    _headers: Headers | None
    _body: list[bytes]
    _bytes: int

    def __init__(self, *, answer_bytes_max: int) -> None:
        self.idle_since = 0.0
        self._answer_bytes_max = answer_bytes_max
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self._lost = False
        self._clean = True
        self._begin()

    @property
    def usable(self) -> bool:
        """Another exchange may follow."""
        return self._clean and not self._lost

    def exchange(self, data: bytes) -> asyncio.Future[Answer]:
        """Write a request; the future ends with its answer, or with ``Broken``."""
        assert self._transport is not None
        self._begin()
        self._clean = False
        self._waiting = asyncio.get_running_loop().create_future()
        if self._lost:
            self._break("closed", "the connection was closed while the request was written")
        else:
            self._transport.write(data)
        return self._waiting

    def abort(self) -> None:
        """Close at once, without waiting for anything still to be written."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Parse what came; bytes that nobody asked for end the connection."""
        self._bytes += len(data)
        if self._waiting is None or self._waiting.done():
            self._clean = False
            self.abort()
        elif self._bytes > self._answer_bytes_max:
            self._break("too_large", f"the answer has more than {self._answer_bytes_max} bytes")
        else:
            try:
                self._parser.feed_data(data)
            except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
                self._clean = False
                self._break("unreadable", f"the answer is no HTTP ({type(error).__name__})")

    def connection_lost(self, error: Exception | None) -> None:
        """An answer without a length ends here; any other one is broken."""
        self._lost = True
        if (
            self._headers is not None
            and "content-length" not in self._headers
            and "transfer-encoding" not in self._headers
        ):
            self._finish(keep=False)
        else:
            why = "closed" if error is None else type(error).__name__
            self._break("closed", f"the connection ended before the answer was whole ({why})")

    def on_message_begin(self) -> None:
        """A second answer to one request: what follows cannot be trusted."""
        if self._waiting is None or self._waiting.done():
            self._clean = False
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header line."""
        self._pairs.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._headers = Headers(self._pairs)

    def on_body(self, part: bytes) -> None:
        """A piece of the body."""
        self._body.append(part)

    def on_message_complete(self) -> None:
        """The answer is whole; one like ``100 Continue`` only announces the real one."""
        if self._parser.get_status_code() < _INFORMATIONAL_BELOW:
            self._pairs, self._headers = [], None
        else:
            self._finish(keep=self._parser.should_keep_alive())

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._pairs = []
        self._headers = None
        self._body = []
        self._bytes = 0

    def _finish(self, *, keep: bool) -> None:
        if self._waiting is not None and not self._waiting.done():
            assert self._headers is not None
            self._clean = keep
            self._waiting.set_result(Answer(self._parser.get_status_code(), self._headers, b"".join(self._body)))

    def _break(self, reason: str, detail: str) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(Broken(reason, detail))
        self.abort()
