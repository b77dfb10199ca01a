"""An ASGI caller by hand: scripted messages in, the answer out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Message = MutableMapping[str, Any]
App = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]


@dataclass
class Heard:
    """What the application sent."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class Script:
    """The receiving side: gives its messages in order, then stays silent."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = list(messages)
        self.taken = 0

    async def receive(self) -> Message:
        if self._messages:
            self.taken += 1
            return self._messages.pop(0)
        await asyncio.Event().wait()
        raise AssertionError


def body_message(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


HANG_UP: Message = {"type": "http.disconnect"}


async def call(
    app: App,
    *,
    method: str = "POST",
    path: str = "/webhooks/stripe",
    headers: Sequence[tuple[bytes, bytes]] = (),
    messages: Sequence[Message] = (),
) -> Heard:
    """Send one request to an application."""
    heard = Heard()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            heard.status = message["status"]
            heard.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            heard.body += message.get("body", b"")

    scope: Message = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": list(headers),
        "client": ("192.0.2.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await app(scope, Script(messages).receive, send)
    return heard
