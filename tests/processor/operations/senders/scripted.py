"""A server that does what a script says, one entry per request: answer, drip, break off, say nothing."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

Act = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Entry = bytes | Act


@dataclass(frozen=True)
class Request:
    """What arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: str

    @property
    def form(self) -> list[tuple[str, str]]:
        return parse_qsl(self.body, keep_blank_values=True)

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.target.partition("?")[2]))


@dataclass
class Server:
    """Entries are taken in order; a request beyond them is closed without an answer."""

    entries: list[Entry]
    url: str = ""
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    connections: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.requests.append(await _read(reader))
                entry = self.entries.pop(0)
                if isinstance(entry, bytes):
                    writer.write(entry)
                    await writer.drain()
                else:
                    await entry(reader, writer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError, IndexError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def scripted(*entries: Entry) -> AsyncIterator[Server]:
    """A server on a free port of 127.0.0.1."""
    server = Server(list(entries))
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    server.url = f"http://127.0.0.1:{server.port}"
    try:
        yield server
    finally:
        listener.close()


def answer(status: int, body: Any = "", **headers: str) -> bytes:
    """A whole answer: JSON for a mapping or list, text as it is; ``_`` in the names of headers stands for ``-``."""
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    lines = [
        f"HTTP/1.1 {status} X",
        f"Content-Length: {len(raw)}",
        *(f"{k.replace('_', '-')}: {v}" for k, v in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + raw


def error(status: int, *, headers: dict[str, str] | None = None, **fields: Any) -> bytes:
    """An answer as Stripe gives for a failure."""
    return answer(status, {"error": fields}, Request_Id="req_e", **(headers or {}))


async def reset(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Break off with RST."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    raise ConnectionResetError


async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Close without an answer."""
    writer.close()
    raise ConnectionResetError


async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Keep the connection and say nothing until the other side goes."""
    await reader.read()
    raise ConnectionResetError


def cut(data: bytes, *, keep: int) -> Act:
    """Send the first bytes of an answer, then close."""

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data[:keep])
        await writer.drain()
        await hang_up(reader, writer)

    return act


def drip(data: bytes, *, pause_seconds: float) -> Act:
    """Send an answer byte by byte."""

    async def act(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in data:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(pause_seconds)

    return act


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, target, headers, body.decode())
