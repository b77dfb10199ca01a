"""A TCP proxy before PostgreSQL that can lose a COMMIT or only its answer.

Rule: it forwards every byte unchanged until the one COMMIT for which it was armed.  Then it either drops the answer
(the server has committed) or does not pass the COMMIT on (the server has not), cuts both sides, and records what it
saw, so that a test can prove that the fault happened.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from enum import Enum

from tests.faults.postgres_wire import (
    COMMIT,
    REQUESTS_FOR_ENCRYPTION,
    BackendStream,
    CommitWatch,
    FrontendStream,
    Message,
    command_tag,
)
from tests.faults.tcp_proxy import Session, TcpProxy


class Cut(Enum):
    """How the COMMIT is lost."""

    ANSWER = "the COMMIT reached the server, its answer is dropped"
    COMMIT = "the COMMIT never reached the server"


def writes_markers(statement: str) -> bool:
    """The statement is one of a batch: it writes to the inbox."""
    return "onceflow.inbox" in statement and "insert" in statement.lower()


class _PostgresSession(Session):
    def __init__(self, client: socket.socket, server: socket.socket, proxy: PostgresProxy) -> None:
        super().__init__(client, server)
        self._proxy = proxy
        self._watch = CommitWatch(proxy.interesting)
        self._frontend, self._backend = FrontendStream(), BackendStream()
        self._awaiting_tag = False

    def up(self, data: bytes) -> tuple[bytes, bool]:
        """Pass whole messages, up to a COMMIT that is to be lost."""
        out: list[bytes] = []
        for message in self._frontend.feed(data):
            cut = self._proxy.take() if self._watch.begins_commit(message) else None
            if cut is Cut.COMMIT:
                self._proxy.fired.set()
                return b"".join(out), True
            self._awaiting_tag = self._awaiting_tag or cut is Cut.ANSWER
            self._note_encryption(message)
            out.append(message.raw)
        return b"".join(out), False

    def down(self, data: bytes) -> tuple[bytes, bool]:
        """Pass whole messages, up to the tag whose answer is to be lost."""
        out: list[bytes] = []
        for message in self._backend.feed(data):
            tag = command_tag(message)
            if self._awaiting_tag and tag == COMMIT:
                self._proxy.tags_dropped.append(tag)
                self._proxy.fired.set()
                return b"".join(out), True
            out.append(message.raw)
        return b"".join(out), False

    def _note_encryption(self, message: Message) -> None:
        if not message.kind and int.from_bytes(message.raw[4:8], "big") in REQUESTS_FOR_ENCRYPTION:
            self._backend.single_bytes += 1


class PostgresProxy(TcpProxy):
    """``arm`` sets the next COMMIT of a transaction of interest up to be lost.

    ``target`` returns host and port of the server; ``host`` and ``port`` are for one that never moves.
    """

    def __init__(
        self,
        *,
        host: str = "",
        port: int = 0,
        target: Callable[[], tuple[str, int]] | None = None,
        interesting: Callable[[str], bool] = writes_markers,
    ) -> None:
        self.interesting = interesting
        self._armed: Cut | None = None
        self._guard = threading.Lock()
        self.fired = threading.Event()
        self.tags_dropped: list[str] = []
        self.commits_seen = 0
        super().__init__(target if target is not None else lambda: (host, port))

    def arm(self, cut: Cut) -> None:
        """Lose the next COMMIT of a transaction of interest, once; ``fired`` is set when it happened."""
        with self._guard:
            self.fired.clear()
            self._armed = cut

    def restore(self) -> None:
        """End all faults, also one that has not happened yet."""
        with self._guard:
            self._armed = None
        super().restore()

    def session(self, client: socket.socket, server: socket.socket) -> Session:
        """Return a session that sees commits pass."""
        return _PostgresSession(client, server, self)

    def take(self) -> Cut | None:
        """Count a COMMIT of interest; return how it is to be lost."""
        with self._guard:
            self.commits_seen += 1
            cut, self._armed = self._armed, None
            return cut
