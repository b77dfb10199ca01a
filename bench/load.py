"""The load: signed webhooks over kept connections, from one process that costs as little as Python can.

Rule: a request is bytes that were made before the clock starts; sending one and reading its answer is a handful of
system calls.  What the load itself takes of the cores is part of its answer.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import selectors
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.bodies import WEBHOOK_SECRET, bodies
from onceflow_producer.lifetime import write_state

LOAD_SECONDS_MAX = 600.0
REQUESTS_PER_SECOND_MAX = 14_000
"""So many requests are made beforehand per second of load."""
ANSWER_SECONDS_MAX = 10.0
RECEIVE_BYTES = 65_536
CONNECT_SECONDS = 5.0
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class BadAnswer(Exception):
    """An endpoint said something else than 200."""


def signed_request(body: bytes, *, path: str, host: str, now: int) -> bytes:
    """Return one whole HTTP request as Stripe sends it."""
    mac = hmac.digest(WEBHOOK_SECRET.encode(), f"{now}.".encode() + body, hashlib.sha256).hex()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: Stripe/1.0\r\nAccept: */*\r\n"
        f"Content-Type: application/json; charset=utf-8\r\nStripe-Signature: t={now},v1={mac}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Connection:
    """One kept connection with at most one request on its way."""

    __slots__ = ("_received", "event_id", "sent_at", "socket")

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, CONNECT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(ANSWER_SECONDS_MAX)
        self._received = b""
        self.event_id = ""
        self.sent_at = 0.0

    def send(self, request: bytes) -> None:
        """Send one request; bodies fit into the socket's buffer, or the call waits a moment."""
        self.socket.sendall(request)

    def receive(self) -> bool:
        """Take what has come; True when the answer is complete.

        Raises:
            BadAnswer: the connection ended, or the answer is not 200.
        """
        data = self.socket.recv(RECEIVE_BYTES)
        if not data:
            raise BadAnswer("the endpoint closed the connection")
        received = self._received + data
        end = received.find(b"\r\n\r\n")
        if end < 0:
            self._received = received
            return False
        if not received.startswith(b"HTTP/1.1 200"):
            raise BadAnswer(received[:300].decode("latin-1"))
        length = _LENGTH.search(received, 0, end)
        assert length is not None, "the answers of these endpoints have a length"
        if len(received) < end + 4 + int(length[1]):
            self._received = received
            return False
        self._received = b""
        return True


def requests_for(told: dict[str, Any], count: int) -> Iterator[tuple[str, bytes]]:
    """Yield (event id, request)."""
    url = urlsplit(told["url"])
    now = int(time.time())
    for event_id, body in bodies(count, series=told["series"], keys=told.get("keys")):
        yield event_id, signed_request(body, path=url.path, host=url.netloc, now=now)


def send_all(told: dict[str, Any]) -> dict[str, float]:
    """Keep every connection busy for a while; returns the rate and the load's share of all cores.

    Args:
        told: url, connections, seconds, warm_up_seconds, series.
    """
    seconds, warm_up = float(told["seconds"]), float(told["warm_up_seconds"])
    made = list(requests_for(told, int((seconds + warm_up) * REQUESTS_PER_SECOND_MAX)))
    url = urlsplit(told["url"])
    selector = selectors.DefaultSelector()
    waiting = iter(made)
    for _ in range(int(told["connections"])):
        connection = Connection((url.hostname or "", url.port or 0))
        selector.register(connection.socket, selectors.EVENT_READ, connection)
        connection.send(next(waiting)[1])
    counted_from = time.monotonic() + warm_up
    counted_to = float("inf")
    answered = counted = 0
    cpu_before = 0.0
    now = 0.0
    while now < counted_to or answered == counted:
        for key, _ in selector.select(ANSWER_SECONDS_MAX):
            connection = key.data
            if not connection.receive():
                continue
            answered += 1
            following = next(waiting, None)
            if following is None:
                raise BadAnswer("more requests per second than were made beforehand")
            connection.send(following[1])
        now = time.monotonic()
        if counted_to == float("inf") and now >= counted_from:
            cpu_before, counted, counted_from, counted_to = time.process_time(), answered, now, now + seconds
    cpu = time.process_time() - cpu_before
    spent = now - counted_from
    _drain(selector)
    return {
        "per_second": (answered - counted) / spent,
        "load_share": cpu / spent / (os.cpu_count() or 1),
        "all_requests": answered,
    }


def _drain(selector: selectors.BaseSelector) -> None:
    """Wait for the answers that are still to come, so that the next side begins with idle endpoints."""
    waiting = [key.data for key in selector.get_map().values()]
    for connection in waiting:
        while not connection.receive():
            pass
        connection.socket.close()


def send_paced(told: dict[str, Any]) -> dict[str, Any]:
    """Send at a steady rate, each at its time; returns when each event was due, on the monotonic clock.

    Args:
        told: url, connections, per_second, events, series, and keys where so many take turns.
    """
    url = urlsplit(told["url"])
    made = list(requests_for(told, int(told["events"])))
    selector = selectors.DefaultSelector()
    # In turn, because the endpoint closes a connection that was not used for some seconds.
    idle = deque(Connection((url.hostname or "", url.port or 0)) for _ in range(int(told["connections"])))
    for connection in idle:
        selector.register(connection.socket, selectors.EVENT_READ, connection)
    due_at: dict[str, float] = {}
    begun = time.monotonic()
    answered = sent = 0
    while answered < len(made):
        now = time.monotonic()
        while sent < len(made) and idle and begun + sent / told["per_second"] <= now:
            event_id, request = made[sent]
            # From the time at which it was due: a late sender must not make the road look fast.
            due_at[event_id] = begun + sent / told["per_second"]
            idle.popleft().send(request)
            sent += 1
        pause = ANSWER_SECONDS_MAX
        if sent < len(made) and idle:
            pause = max(0.0, begun + sent / told["per_second"] - time.monotonic())
        for key, _ in selector.select(pause):
            if key.data.receive():
                answered += 1
                idle.append(key.data)
    spent = time.monotonic() - begun
    return {"due_at": due_at, "per_second": answered / spent, "load_share": time.process_time() / spent}


def main(told: dict[str, Any]) -> None:
    """Run as the arguments say and write the answer."""
    answer = send_paced(told) if "per_second" in told else send_all(told)
    write_state(Path(told["answer_file"]), answer)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
