"""A TCP proxy before PostgreSQL that can lose a COMMIT or only its answer.

Rule: it forwards every byte unchanged until the one COMMIT for which it was armed.  Then it either drops the answer
(the server has committed) or does not pass the COMMIT on (the server has not), cuts both sides, and records what it
saw, so that a test can prove that the fault happened.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Self

from tests.faults.postgres_wire import (
    COMMIT,
    REQUESTS_FOR_ENCRYPTION,
    BackendStream,
    CommitWatch,
    FrontendStream,
    Message,
    command_tag,
)

RECEIVE_BYTES = 1 << 16
CONNECT_SECONDS = 10.0
CLOSE_SECONDS = 5.0


class Cut(Enum):
    """How the COMMIT is lost."""

    ANSWER = "the COMMIT reached the server, its answer is dropped"
    COMMIT = "the COMMIT never reached the server"


def writes_markers(statement: str) -> bool:
    """The statement is one of a batch: it writes to the inbox."""
    return "onceflow.inbox" in statement and "insert" in statement.lower()


@dataclass(slots=True)
class _Session:
    client: socket.socket
    server: socket.socket
    watch: CommitWatch
    frontend: FrontendStream = field(default_factory=FrontendStream)
    backend: BackendStream = field(default_factory=BackendStream)
    awaiting_tag: bool = False

    def cut(self) -> None:
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class PostgresProxy:
    """Listens on a free port of 127.0.0.1 and forwards to the server; ``arm`` sets the next COMMIT up to be lost."""

    def __init__(self, *, host: str, port: int, interesting: Callable[[str], bool] = writes_markers) -> None:
        self._target = (host, port)
        self._interesting = interesting
        self._armed: Cut | None = None
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._sessions: list[_Session] = []
        self.fired = threading.Event()
        self.tags_dropped: list[str] = []
        self.commits_seen = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def arm(self, cut: Cut) -> None:
        """Lose the next COMMIT of a transaction of interest, once; ``fired`` is set when it happened."""
        with self._lock:
            self.fired.clear()
            self._armed = cut

    def close(self) -> None:
        """Stop listening and cut every session."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for session in list(self._sessions):
            session.cut()
        for thread in list(self._threads):
            thread.join(CLOSE_SECONDS)
        for session in self._sessions:
            session.client.close()
            session.server.close()

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target, timeout=CONNECT_SECONDS)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            session = _Session(client, server, CommitWatch(self._interesting))
            self._sessions.append(session)
            self._start(self._forward, session)
            self._start(self._answer, session)

    def _forward(self, session: _Session) -> None:
        """Client to server, message by message."""
        with contextlib.suppress(OSError):
            while data := session.client.recv(RECEIVE_BYTES):
                for message in session.frontend.feed(data):
                    if self._lost(session, message):
                        return
                    self._note_encryption(session, message)
                    session.server.sendall(message.raw)
        session.cut()

    def _lost(self, session: _Session, message: Message) -> bool:
        """Decide about a message; True when it must not pass, and the session was cut."""
        if not session.watch.begins_commit(message):
            return False
        with self._lock:
            self.commits_seen += 1
            if self._armed is Cut.COMMIT:
                self._armed = None
                session.cut()
                self.fired.set()
                return True
            if self._armed is Cut.ANSWER:
                self._armed = None
                session.awaiting_tag = True
        return False

    def _note_encryption(self, session: _Session, message: Message) -> None:
        if not message.kind and int.from_bytes(message.raw[4:8], "big") in REQUESTS_FOR_ENCRYPTION:
            session.backend.single_bytes += 1

    def _answer(self, session: _Session) -> None:
        """Server to client; ends at the tag whose answer is to be lost."""
        with contextlib.suppress(OSError):
            while data := session.server.recv(RECEIVE_BYTES):
                for message in session.backend.feed(data):
                    tag = command_tag(message)
                    if session.awaiting_tag and tag == COMMIT:
                        self.tags_dropped.append(tag)
                        session.cut()
                        self.fired.set()
                        return
                    session.client.sendall(message.raw)
        session.cut()
