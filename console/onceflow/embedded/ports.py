"""Chooses TCP ports on 127.0.0.1 and remembers them in the data folder.

Rule: a folder keeps its ports for as long as they are free, so that clients outside go on working after a restart.

Ports are taken below the range from which the system picks ports for outgoing connections.  Inside it a port of
ours could be borrowed while the service is down; worse, a client that tries to reconnect to a closed port of that
range can be given this very port as its own and then be connected to itself.
"""

from __future__ import annotations

import errno
import json
import random
import socket
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from onceflow.embedded.data_folder import write_durably
from onceflow_schemas.failure import Unavailable

HOST = "127.0.0.1"
PORT_FIRST = 20_000
PORT_LAST = 32_000
PORT_MAX = 65_535
CHOICE_TRIES_MAX = 1_000
# The process that used the port before may still be on its way out (a postmaster takes up to 5 seconds).
REMEMBERED_GRACE_SECONDS = 6.0
POLL_SECONDS = 0.05


def is_free(port: int, *, host: str = HOST) -> bool:
    """Say whether a server could listen on the port now, with the socket option that both servers use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            return False
    return True


def accepts_connections(port: int, *, timeout_seconds: float = 1.0) -> bool:
    """Say whether something listens on the port."""
    try:
        with socket.create_connection((HOST, port), timeout=timeout_seconds):
            return True
    except OSError:
        return False


def choose_port(*, taken: Collection[int]) -> int:
    """Return a free port that is not among ``taken``.

    Raises:
        Unavailable: ``service_failed``.
    """
    source = random.SystemRandom()
    for _ in range(CHOICE_TRIES_MAX):
        port = source.randint(PORT_FIRST, PORT_LAST)
        if port not in taken and is_free(port):
            return port
    raise Unavailable(
        "service_failed",
        f"no free port was found on {HOST} between {PORT_FIRST} and {PORT_LAST}",
        "Look at what listens there; the embedded services need three ports.",
    )


def claim_ports(book: Path, names: Sequence[str], *, grace_seconds: float) -> dict[str, int]:
    """Return a port per name: the remembered one where it is or comes free within the grace, else a new one.

    Args:
        book: the JSON file in the data folder that remembers them; written when something changed.
        names: which ports are needed, such as ``client`` and ``controller``.
        grace_seconds: how long to wait for remembered ports of a process that is about to end.
    """
    remembered = _read(book)
    deadline = time.monotonic() + grace_seconds
    ports = dict(remembered)
    for name in names:
        port = remembered.get(name)
        if port is None or not comes_free(port, within_seconds=deadline - time.monotonic()):
            ports[name] = choose_port(taken=ports.values())
    if ports != remembered:
        write_durably(book, json.dumps(ports))
    return {name: ports[name] for name in names}


def comes_free(port: int, *, within_seconds: float, host: str = HOST) -> bool:
    """Say whether a server can listen on the port, waiting for one that is about to end."""
    deadline = time.monotonic() + within_seconds
    while not is_free(port, host=host):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _read(book: Path) -> dict[str, int]:
    try:
        content = json.loads(book.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {name: port for name, port in content.items() if type(port) is int and 0 < port <= PORT_MAX}
