"""Uvicorn's HTTP connection, with its transport within reach of the application.

Rule: a connection can be cut at any moment, as a network does it: no well-behaved server can lose an answer otherwise.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

from starlette.types import Receive
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

TRANSPORT = "onceflow_simulator.transport"
_LINGER_NONE = struct.pack("ii", 1, 0)


class Connection(HttpToolsProtocol):
    """Puts the transport into the scope of each request."""

    def on_message_begin(self) -> None:
        """A request begins: its scope was just made."""
        super().on_message_begin()
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]  # a private name is added to it
        scope[TRANSPORT] = self.transport


async def close(scope: Any, receive: Receive) -> None:
    """Close the connection after what was written; the end of an answer may be missing."""
    transport: asyncio.Transport = scope[TRANSPORT]
    transport.close()
    await gone(receive)


async def gone(receive: Receive) -> None:
    """Wait until the connection is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def reset(scope: Any) -> None:
    """Cut the connection hard: the other side sees it reset, and nothing that was not yet read."""
    transport: asyncio.Transport = scope[TRANSPORT]
    raw = transport.get_extra_info("socket")
    # Closed already when the other side was faster.
    if raw is not None and raw.fileno() >= 0:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
    transport.abort()
    # The server answers 500 by itself when an application returns before it knows that the connection is gone.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
