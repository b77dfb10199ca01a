"""A client that may do everything wrong: raw bytes over a socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

READ_SECONDS = 20.0


@dataclass(frozen=True)
class RawAnswer:
    """The first answer on a connection; status 0 when it was closed without one."""

    status: int
    head: bytes
    body: bytes

    @property
    def code(self) -> str:
        document: dict[str, Any] = json.loads(self.body)
        return str(document["error"]["code"])


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=READ_SECONDS) as client:
        yield client


def request(
    *lines: str,
    body: bytes = b"",
    method: str = "POST",
    target: str = "/webhooks/stripe",
    length: int | None = None,
) -> bytes:
    """A request with a Content-Length (of the body, or another one)."""
    announced = len(body) if length is None else length
    head = [f"{method} {target} HTTP/1.1", "Host: x", f"Content-Length: {announced}", *lines]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


def read_answer(client: socket.socket) -> RawAnswer:
    """Read one whole answer, by its Content-Length."""
    data = b""
    while b"\r\n\r\n" not in data:
        try:
            chunk = client.recv(65_536)
        except ConnectionResetError:
            chunk = b""
        if not chunk:
            return RawAnswer(0, data, b"")
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    while len(body) < length and (chunk := client.recv(65_536)):
        body += chunk
    return RawAnswer(int(head.split(b" ")[1]), head, body)


def exchange(port: int, *pieces: bytes) -> RawAnswer:
    """Send the pieces, then read one answer."""
    with connected(port) as client:
        send_all(client, pieces)
        return read_answer(client)


def send_all(client: socket.socket, pieces: Iterable[bytes]) -> None:
    """Send as far as the other side takes it."""
    try:
        for piece in pieces:
            client.sendall(piece)
    except (BrokenPipeError, ConnectionResetError):
        return
