"""One HTTP POST over a connection of its own, with a deadline over all of it.

Rule: what is sent is exactly the bytes given; redirects are not followed, as Stripe does not.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

ANSWER_BYTES_MAX = 65_536


async def post(url: str, body: bytes, *, headers: Mapping[str, str], timeout_seconds: float) -> int:
    """Send, and return the status.

    Raises:
        OSError: no connection, or none any more.
        TimeoutError: no answer in time.
        ValueError: what came is no HTTP.
    """
    parts = urlsplit(url)
    secure = ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or (443 if secure else 80)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [f"POST {target} HTTP/1.1", f"Host: {parts.netloc}", "Connection: close", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    async with asyncio.timeout(timeout_seconds):
        reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=secure)
        try:
            writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
            await writer.drain()
            first = await reader.readline()
            words = first.split(maxsplit=2)
            if len(words) < 2 or not words[0].startswith(b"HTTP/"):  # noqa: PLR2004 - version and status
                raise ConnectionResetError("no answer")
            await reader.read(ANSWER_BYTES_MAX)
            return int(words[1])
        finally:
            writer.close()
