"""A TCP proxy that can cut, reset, hold, drop and delay, in one direction or both.

Rule: every byte passes unchanged and in order until a fault is set; what was withheld or lost is counted, so that a
test can prove that the fault happened.  A direction that has lost bytes is never used again: its session is cut when
the fault ends.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Self

RECEIVE_BYTES = 1 << 16
CONNECT_SECONDS = 10.0
CLOSE_SECONDS = 5.0
HELD_LOOK_SECONDS = 0.2
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing sends RST instead of FIN."""


class Way(Enum):
    """The direction of bytes."""

    UP = "client to server"
    DOWN = "server to client"


class Session:
    """One connection through the proxy; a protocol's proxy overrides ``up`` and ``down``."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.lost_bytes = False
        self.ended = threading.Event()

    def up(self, data: bytes) -> tuple[bytes, bool]:
        """Return what goes to the server, and whether the session is cut after it."""
        return data, False

    def down(self, data: bytes) -> tuple[bytes, bool]:
        """Return what goes to the client, and whether the session is cut after it."""
        return data, False

    def cut(self, *, reset: bool = False) -> None:
        """End both connections."""
        self.ended.set()
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                if reset:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                end.shutdown(socket.SHUT_RDWR)


class TcpProxy:
    """Listens on a free port of 127.0.0.1 and forwards to wherever ``target`` says at each new connection."""

    def __init__(self, target: Callable[[], tuple[str, int]]) -> None:
        self._target = target
        self._turn = threading.Condition()
        self._held: set[Way] = set()
        self._dropped: set[Way] = set()
        self._refusing = False
        self._closed = False
        self._delay_seconds = 0.0
        self._sessions: list[Session] = []
        self.accepted = self.refused = self.sessions_cut = 0
        self.bytes_held = {Way.UP: 0, Way.DOWN: 0}
        self.bytes_dropped = {Way.UP: 0, Way.DOWN: 0}
        self.bytes_delayed = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def session(self, client: socket.socket, server: socket.socket) -> Session:
        """Return the session of a new connection; for proxies that know a protocol."""
        return Session(client, server)

    def cut(self) -> None:
        """End every session, and end new ones at once, until ``restore``."""
        with self._turn:
            self._refusing = True
        self.sever()

    def sever(self, *, reset: bool = False) -> int:
        """End every session once, by RST if asked; return how many there were."""
        open_sessions = self.open_sessions()
        for session in open_sessions:
            session.cut(reset=reset)
        self.sessions_cut += len(open_sessions)
        self._wake()
        return len(open_sessions)

    def open_sessions(self) -> list[Session]:
        """The sessions that have not ended."""
        with self._turn:
            self._sessions = [session for session in self._sessions if not session.ended.is_set()]
            return list(self._sessions)

    def hold(self, *ways: Way) -> None:
        """Keep bytes back (both ways when none is given) until ``restore``, then let them pass late."""
        with self._turn:
            self._held |= set(ways or Way)

    def drop(self, way: Way) -> None:
        """Lose all bytes of one direction until ``restore``."""
        with self._turn:
            self._dropped.add(way)

    def delay(self, seconds: float) -> None:
        """Let each piece of data wait so long, in each direction, until ``restore``."""
        with self._turn:
            self._delay_seconds = seconds

    def restore(self) -> None:
        """End all faults; sessions that have lost bytes are cut."""
        with self._turn:
            self._held.clear()
            self._dropped.clear()
            self._refusing, self._delay_seconds = False, 0.0
            for session in self._sessions:
                if session.lost_bytes and not session.ended.is_set():
                    session.cut()
            self._turn.notify_all()

    def close(self) -> None:
        """Stop listening and end every session."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.sever()

    def _wake(self) -> None:
        with self._turn:
            self._turn.notify_all()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing or self._closed:
                self.refused += 1
                client.close()
                continue
            threading.Thread(target=self._open, args=(client,), daemon=True).start()

    def _open(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._target(), timeout=CONNECT_SECONDS)
        except OSError:
            self.refused += 1
            client.close()
            return
        server.settimeout(None)
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        session = self.session(client, server)
        with self._turn:
            self.accepted += 1
            self._sessions.append(session)
        if self._refusing or self._closed:
            session.cut()
        answers = threading.Thread(target=self._pump, args=(session, Way.DOWN), daemon=True)
        answers.start()
        self._pump(session, Way.UP)
        answers.join()
        client.close()
        server.close()

    def _pump(self, session: Session, way: Way) -> None:
        source, sink = (session.client, session.server) if way is Way.UP else (session.server, session.client)
        change = session.up if way is Way.UP else session.down
        with contextlib.suppress(OSError):
            while data := source.recv(RECEIVE_BYTES):
                if not self._passes(session, way, len(data)):
                    continue
                out, cut = change(data)
                if out:
                    sink.sendall(out)
                if cut:
                    break
        session.cut()
        self._wake()

    def _passes(self, session: Session, way: Way, count: int) -> bool:
        """Wait while the direction is held; False when the bytes are lost."""
        with self._turn:
            if way in self._dropped:
                self.bytes_dropped[way] += count
                session.lost_bytes = True
                return False
            if way in self._held:
                self.bytes_held[way] += count
                while way in self._held and not session.ended.is_set():
                    self._turn.wait(HELD_LOOK_SECONDS)
            delay_seconds = self._delay_seconds
            self.bytes_delayed += count if delay_seconds else 0
        if delay_seconds:
            session.ended.wait(delay_seconds)
        return not session.ended.is_set()
