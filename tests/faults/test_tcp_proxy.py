"""The proxies do what they say and count it: cut, reset, hold, drop, delay, and one Kafka request lost."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.checker.waiting import wait_for
from tests.faults.kafka_proxy import Api, Frames, KafkaProxy, Loss
from tests.faults.tcp_proxy import TcpProxy, Way

ANSWER_SECONDS = 5.0


class Echo:
    """A server that sends everything back."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.received = b""
        threading.Thread(target=self._accept, daemon=True).start()

    def target(self) -> tuple[str, int]:
        return "127.0.0.1", self.listener.getsockname()[1]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(1 << 16):
                self.received += data
                connection.sendall(data)


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.listener.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[TcpProxy]:
    with TcpProxy(echo.target) as made:
        yield made


def client_of(proxy: TcpProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=ANSWER_SECONDS)


def ask(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    return receive(connection, len(data))


def receive(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count and (data := connection.recv(count - len(found))):
        found += data
    return found


def is_cut(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_passes_everything(proxy: TcpProxy) -> None:
    with client_of(proxy) as connection:
        assert ask(connection, b"x" * 200_000) == b"x" * 200_000


def test_cut_ends_sessions_and_refuses_until_restored(proxy: TcpProxy) -> None:
    with client_of(proxy) as connection, client_of(proxy):
        assert ask(connection, b"one") == b"one"
        wait_for(lambda: proxy.accepted == 2, limit_seconds=ANSWER_SECONDS, what="both are through")
        proxy.cut()
        assert is_cut(connection)
    with client_of(proxy) as refused:
        assert is_cut(refused)
    assert (proxy.sessions_cut, proxy.refused) == (2, 1)
    proxy.restore()
    with client_of(proxy) as connection:
        assert ask(connection, b"two") == b"two"


def test_held_bytes_come_late_and_whole(proxy: TcpProxy, echo: Echo) -> None:
    with client_of(proxy) as connection:
        assert ask(connection, b"one") == b"one"
        proxy.hold(Way.UP)
        connection.sendall(b"two")
        wait_for(lambda: proxy.bytes_held[Way.UP] == 3, limit_seconds=ANSWER_SECONDS, what="bytes are held")
        assert echo.received == b"one"
        proxy.restore()
        assert receive(connection, 3) == b"two"


def test_dropped_direction_is_cut_when_restored(proxy: TcpProxy, echo: Echo) -> None:
    with client_of(proxy) as connection:
        assert ask(connection, b"one") == b"one"
        proxy.drop(Way.DOWN)
        connection.sendall(b"two")
        wait_for(lambda: proxy.bytes_dropped[Way.DOWN] == 3, limit_seconds=ANSWER_SECONDS, what="the answer is lost")
        assert echo.received == b"onetwo"
        proxy.restore()
        assert is_cut(connection)


def test_delay_is_in_both_directions(proxy: TcpProxy) -> None:
    with client_of(proxy) as connection:
        assert ask(connection, b"one") == b"one"
        proxy.delay(0.1)
        began = time.monotonic()
        assert ask(connection, b"two") == b"two"
        assert time.monotonic() - began >= 0.2
        assert proxy.bytes_delayed == 6


def test_reset(proxy: TcpProxy) -> None:
    with client_of(proxy) as connection:
        assert ask(connection, b"one") == b"one"
        assert proxy.sever(reset=True) == 1
        assert is_cut(connection)


def frame(api: int, correlation: int, text: bytes = b"") -> bytes:
    """A request; echoed, its correlation id does not stand where an answer has it, so the version is used for it."""
    payload = api.to_bytes(2, "big") + bytes(2) + correlation.to_bytes(4, "big") + text
    return len(payload).to_bytes(4, "big") + payload


def test_frames_are_whole_whatever_the_pieces() -> None:
    frames, data = Frames(), frame(1, 7, b"abc") + frame(2, 8)
    found = [whole for byte in data for whole in frames.feed(bytes([byte]))]
    assert found == [frame(1, 7, b"abc"), frame(2, 8)]


def test_lost_request_never_reaches_the_broker(echo: Echo) -> None:
    with KafkaProxy(echo.target) as proxy, client_of(proxy) as connection:
        assert ask(connection, frame(Api.END_TXN, 1)) == frame(Api.END_TXN, 1)
        proxy.arm(Api.END_TXN, Loss.REQUEST)
        assert ask(connection, frame(Api.FETCH, 2)) == frame(Api.FETCH, 2)
        connection.sendall(frame(Api.END_TXN, 3))
        assert is_cut(connection)
        assert proxy.fired.is_set()
        assert echo.received == frame(Api.END_TXN, 1) + frame(Api.FETCH, 2)


def test_lost_answer_leaves_the_broker_with_the_request() -> None:
    """A broker that answers with the correlation id where answers have it."""
    listener = socket.create_server(("127.0.0.1", 0))
    received: list[bytes] = []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            while whole := connection.recv(12):
                received.append(whole)
                connection.sendall((4).to_bytes(4, "big") + whole[8:12])

    threading.Thread(target=serve, daemon=True).start()
    with KafkaProxy(lambda: listener.getsockname()[:2]) as proxy, client_of(proxy) as connection:
        connection.sendall(frame(Api.END_TXN, 1))
        assert receive(connection, 8) == b"\x00\x00\x00\x04\x00\x00\x00\x01"
        proxy.arm(Api.END_TXN, Loss.ANSWER)
        connection.sendall(frame(Api.END_TXN, 2))
        assert is_cut(connection)
        assert proxy.fired.is_set()
        assert received == [frame(Api.END_TXN, 1), frame(Api.END_TXN, 2)]
    listener.close()
