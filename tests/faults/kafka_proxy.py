"""A TCP proxy before a Kafka broker that can lose one request of a given kind, or only its answer.

Rule: requests and answers are cut into frames and never changed.  Facts: Kafka protocol guide, "Protocol primitives":
each frame is a length of four bytes and that many bytes; a request begins with API key (2 bytes), API version (2
bytes) and correlation id (4 bytes), an answer with the correlation id.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from enum import Enum, IntEnum

from tests.faults.tcp_proxy import Session, TcpProxy

LENGTH_BYTES = 4


class Api(IntEnum):
    """Request kinds by their number in the protocol."""

    PRODUCE = 0
    FETCH = 1
    OFFSET_COMMIT = 8
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    CONSUMER_GROUP_HEARTBEAT = 68


class Loss(Enum):
    """What of a request is lost."""

    REQUEST = "the request never reached the broker"
    ANSWER = "the broker has answered, and the answer was dropped"


class Frames:
    """Cuts a stream of bytes into whole frames, their lengths included."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that are complete now."""
        self._buffer += data
        found: list[bytes] = []
        start = 0
        while len(self._buffer) - start >= LENGTH_BYTES:
            end = start + LENGTH_BYTES + int.from_bytes(self._buffer[start : start + LENGTH_BYTES], "big")
            if len(self._buffer) < end:
                break
            found.append(bytes(self._buffer[start:end]))
            start = end
        del self._buffer[:start]
        return found


class _KafkaSession(Session):
    def __init__(self, client: socket.socket, server: socket.socket, proxy: KafkaProxy) -> None:
        super().__init__(client, server)
        self._proxy = proxy
        self._requests, self._answers = Frames(), Frames()
        self._lost_answer: int | None = None

    def up(self, data: bytes) -> tuple[bytes, bool]:
        """Pass whole requests, up to the one that is to be lost."""
        out = bytearray()
        for frame in self._requests.feed(data):
            key, correlation = int.from_bytes(frame[4:6], "big"), int.from_bytes(frame[8:12], "big")
            loss = self._proxy.take(key)
            if loss is Loss.REQUEST:
                self._proxy.note(key)
                return bytes(out), True
            if loss is Loss.ANSWER:
                self._lost_answer = correlation
            out += frame
        return bytes(out), False

    def down(self, data: bytes) -> tuple[bytes, bool]:
        """Pass whole answers, up to the one that is to be lost."""
        out = bytearray()
        for frame in self._answers.feed(data):
            if self._lost_answer is not None and int.from_bytes(frame[4:8], "big") == self._lost_answer:
                self._proxy.note(None)
                return bytes(out), True
            out += frame
        return bytes(out), False


class KafkaProxy(TcpProxy):
    """``arm`` sets the next request of a kind up to be lost; ``fired`` is set when it happened."""

    def __init__(self, target: Callable[[], tuple[str, int]]) -> None:
        self._armed: tuple[int, Loss] | None = None
        self._guard = threading.Lock()
        self.fired = threading.Event()
        self.seen: dict[int, int] = {}
        super().__init__(target)

    def arm(self, api: Api, loss: Loss) -> None:
        """Lose the next request of this kind, or its answer, once."""
        with self._guard:
            self.fired.clear()
            self._armed = (api, loss)

    def restore(self) -> None:
        """End all faults, also one that has not happened yet."""
        with self._guard:
            self._armed = None
        super().restore()

    def session(self, client: socket.socket, server: socket.socket) -> Session:
        """Return a session that knows requests from each other."""
        return _KafkaSession(client, server, self)

    def take(self, key: int) -> Loss | None:
        """Count a request; return what is to be lost of it."""
        with self._guard:
            self.seen[key] = self.seen.get(key, 0) + 1
            if self._armed is None or self._armed[0] != key:
                return None
            loss, self._armed = self._armed[1], None
            return loss

    def note(self, _key: int | None) -> None:
        """The loss has happened."""
        self.sessions_cut += 1
        self.fired.set()
