"""Connections that send nothing, too slowly, or without end; over the real server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import uvicorn

from onceflow_producer.body import BODY_IS_HERE
from onceflow_producer.connection import ConnectionLimits, bounded_by
from onceflow_producer.metrics import BridgeMetrics
from onceflow_producer.refusal import REFUSAL_ANSWERS, json_answer
from onceflow_producer.request_head import HEADERS_BYTES_MAX
from onceflow_producer.webhook import Receive, Scope, Send
from tests.producer.raw_http import connected, exchange, read_answer, request, send_all
from tests.waiting import wait_until


async def early(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer by the path alone: 413 at /early, at /here whether the body is, else 200 when the body is complete."""
    if scope["path"] == "/here":
        answer = json_answer(200, b"true" if BODY_IS_HERE in scope["state"] else b"false")
        await send(answer.start)
        await send(answer.body)
        return
    answer = REFUSAL_ANSWERS["body_too_large"] if scope["path"] == "/early" else json_answer(200, b"{}")
    while scope["path"] != "/early":
        message = await receive()
        if message["type"] == "http.disconnect" or not message["more_body"]:
            break
    await send(answer.start)
    await send(answer.body)


class Served:
    def __init__(self, port: int, limits: ConnectionLimits) -> None:
        self.port = port
        self.limits = limits

    def count(self, name: str) -> float:
        value = self.limits.metrics.registry.get_sample_value(name)
        assert value is not None
        return value


@contextmanager
def served(*, connections_max: int = 100, headers_deadline_seconds: float = 30.0) -> Iterator[Served]:
    limits = ConnectionLimits(
        BridgeMetrics(), connections_max=connections_max, headers_deadline_seconds=headers_deadline_seconds
    )
    config = uvicorn.Config(
        early, http=bounded_by(limits), ws="none", lifespan="off", log_config=None, log_level="error"
    )
    server = uvicorn.Server(config)

    async def serve(listener: socket.socket) -> None:
        sweeping = asyncio.create_task(limits.sweep_for_ever())
        await server.serve(sockets=[listener])
        sweeping.cancel()

    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=lambda: asyncio.run(serve(listener)))
    thread.start()
    try:
        wait_until(lambda: server.started, within_seconds=10, why="the server does not start")
        yield Served(listener.getsockname()[1], limits)
    finally:
        server.should_exit = True
        thread.join()


def closed_by_server(client: socket.socket) -> bool:
    client.settimeout(0.05)
    with contextlib.suppress(TimeoutError):
        try:
            return client.recv(1) == b""
        except ConnectionResetError:
            return True
    return False


def test_connections_beyond_the_limit_are_closed_and_the_others_go_on() -> None:
    with served(connections_max=3) as server, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(server.port)) for _ in range(3)]
        wait_until(lambda: len(server.limits.open) == 3, within_seconds=5, why="three are open")
        extra = stack.enter_context(connected(server.port))
        wait_until(lambda: closed_by_server(extra), within_seconds=5, why="the fourth is closed")
        assert server.count("onceflow_bridge_connections_refused_total") == 1
        send_all(clients[0], [request(body=b"x")])
        assert read_answer(clients[0]).status == 200
        clients[1].close()
        wait_until(lambda: len(server.limits.open) == 2, within_seconds=5, why="a closed one is forgotten")
        assert exchange(server.port, request(body=b"x")).status == 200


def test_silence_and_slow_headers_end_at_the_deadline() -> None:
    with (
        served(headers_deadline_seconds=0.5) as server,
        connected(server.port) as silent,
        connected(server.port) as slow,
    ):
        slow.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        started = time.monotonic()
        wait_until(lambda: closed_by_server(silent), within_seconds=5, why="the silent one is closed")
        wait_until(lambda: closed_by_server(slow), within_seconds=5, why="the slow one is closed")
        assert time.monotonic() - started < 3.0
        assert server.count("onceflow_bridge_headers_timed_out_total") == 2
        assert not server.limits.open


def test_a_trickle_of_header_bytes_does_not_move_the_deadline() -> None:
    with served(headers_deadline_seconds=0.5) as server, connected(server.port) as slow:
        slow.sendall(b"POST / HTTP/1.1\r\n")
        started = time.monotonic()
        while not closed_by_server(slow):
            send_all(slow, [b"x"])
            assert time.monotonic() - started < 3.0


def test_blank_lines_between_requests_do_not_keep_a_connection() -> None:
    with served(headers_deadline_seconds=0.5) as server, connected(server.port) as client:
        client.sendall(request(body=b"x"))
        assert read_answer(client).status == 200
        started = time.monotonic()
        while not closed_by_server(client):
            send_all(client, [b"\r\n"])
            assert time.monotonic() - started < 3.0


def test_a_header_without_end_is_refused_early() -> None:
    with served() as server:
        endless = [b"POST / HTTP/1.1\r\nX-Endless: ", *[b"x" * 16_384] * 64]
        answer = exchange(server.port, *endless)
        assert answer.status in {431, 0}
        assert server.count("onceflow_bridge_connections_refused_total") == 0
        assert (
            server.limits.metrics.registry.get_sample_value(
                "onceflow_bridge_refused_total", {"code": "headers_too_large"}
            )
            == 1
        )


def test_a_body_answered_early_is_thrown_away_and_the_connection_lives() -> None:
    with served() as server, connected(server.port) as client:
        client.sendall(request(body=b"x" * 5_000_000, target="/early"))
        assert read_answer(client).status == 413
        client.sendall(request(body=b"x"))
        assert read_answer(client).status == 200


def test_the_last_piece_of_a_body_answered_early_is_no_header() -> None:
    """The pieces are as long as the network makes them, the last one too."""
    last = 4 * HEADERS_BYTES_MAX
    with served() as server, connected(server.port) as client:
        for _ in range(10):
            client.sendall(request(target="/early", length=last))
            assert read_answer(client).status == 413
            client.sendall(b"x" * last)
            client.sendall(request(body=b"x"))
            assert read_answer(client).status == 200


def test_a_body_answered_early_may_not_go_on_for_ever() -> None:
    with served(headers_deadline_seconds=0.5) as server, connected(server.port) as client:
        client.sendall(request(target="/early", length=10**12))
        assert read_answer(client).status == 413
        started = time.monotonic()
        while not closed_by_server(client):
            send_all(client, [b"x" * 1_000])
            assert time.monotonic() - started < 3.0


@pytest.mark.parametrize(
    ("soft", "hard", "said"),
    [(64, 4_096, "1256"), (2_000, 4_096, "2000"), (64, 512, "settings_invalid")],
)
def test_open_files_are_raised_to_what_the_connections_need(*, soft: int, hard: int, said: str) -> None:
    script = (
        "import resource\n"
        "from onceflow_producer.connection import allow_open_files\n"
        "from onceflow_schemas.failure import Misconfigured\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        "try:\n"
        "    allow_open_files(1_000)\n"
        "    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
        "except Misconfigured as refused:\n"
        "    print(refused.code)\n"
    )
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert finished.stdout.strip() == said


def test_requests_in_one_packet_are_answered_in_order() -> None:
    with served(headers_deadline_seconds=0.5) as server, connected(server.port) as client:
        client.sendall(request(body=b"x") + request(target="/early") + request(body=b"y"))
        assert [read_one(client) for _ in range(3)] == [200, 413, 200]


def test_a_request_knows_whether_its_own_body_is_complete() -> None:
    whole, unfinished = request(target="/here", body=b"x"), request(target="/here", length=1)
    with served() as server:
        assert exchange(server.port, whole).body == b"true"
        assert exchange(server.port, unfinished).body == b"false"
        with connected(server.port) as client:
            client.sendall(whole + unfinished)
            assert read_one(client) == 200
            assert read_answer(client).body == b"false"


def read_one(client: socket.socket) -> int:
    """Read exactly one answer, byte by byte, so that the next one stays."""
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        data += client.recv(1)
    length = int(data.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    while length:
        length -= len(client.recv(length))
    return int(data.split(b" ")[1])
