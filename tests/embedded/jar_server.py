"""A small Maven repository on 127.0.0.1 that serves the jars of a warm cache, whole or damaged, and counts requests."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class JarServer:
    """What it serves.

    Args:
        folder: where the jars lie under their plain names.
        damaged: names that are served with their last byte changed.
        missing: names that are answered with 404.
    """

    folder: Path
    url: str = ""
    damaged: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    served: Counter[str] = field(default_factory=Counter)

    @property
    def repositories(self) -> dict[str, str]:
        return {"here": self.url}

    def content(self, name: str) -> bytes | None:
        """Return the bytes for a file name, None for one that is not there."""
        path = self.folder / name
        if name in self.missing or not path.exists():
            return None
        self.served[name] += 1
        whole = path.read_bytes()
        return whole[:-1] + bytes([whole[-1] ^ 1]) if name in self.damaged else whole


@contextlib.contextmanager
def serve_jars(folder: Path) -> Iterator[JarServer]:
    """Serve a folder for as long as the block lasts."""
    jars = JarServer(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = jars.content(self.path.rpartition("/")[2])
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is printed per request."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    jars.url = f"http://127.0.0.1:{server.server_address[1]}/maven"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield jars
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
