"""As much of PostgreSQL's wire protocol as it takes to see a COMMIT pass, in simple, extended and pipelined form.

Rule: pure; bytes in, whole messages out.  Facts: "Frontend/Backend Protocol" of the PostgreSQL documentation
(message formats); a client that asks for encryption gets one answer byte before the messages begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

PROTOCOL_MAJOR = 3
REQUESTS_FOR_ENCRYPTION = frozenset({80877103, 80877104})
STARTUP_HEADER_BYTES = 8
HEADER_BYTES = 5
COMMIT = "COMMIT"


@dataclass(frozen=True, slots=True)
class Message:
    """One message as it came: its type letter (empty before the session starts) and all its bytes."""

    kind: str
    raw: bytes

    @property
    def payload(self) -> bytes:
        """The bytes behind type and length."""
        return self.raw[HEADER_BYTES:]


class FrontendStream:
    """Cuts the client's bytes into messages."""

    def __init__(self) -> None:
        self._buffer = b""
        self._started = False

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that are complete now."""
        self._buffer += data
        while (message := self._next()) is not None:
            yield message

    def _next(self) -> Message | None:
        header = HEADER_BYTES if self._started else STARTUP_HEADER_BYTES
        if len(self._buffer) < header:
            return None
        start = 1 if self._started else 0
        end = start + int.from_bytes(self._buffer[start : start + 4], "big")
        if len(self._buffer) < end:
            return None
        raw, self._buffer = self._buffer[:end], self._buffer[end:]
        if self._started:
            return Message(chr(raw[0]), raw)
        code = int.from_bytes(raw[4:8], "big")
        self._started = code >> 16 == PROTOCOL_MAJOR
        return Message("", raw)


class BackendStream:
    """Cuts the server's bytes into messages; ``single_bytes`` answers to requests for encryption come first."""

    def __init__(self) -> None:
        self._buffer = b""
        self.single_bytes = 0

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that are complete now."""
        self._buffer += data
        while self._buffer and self.single_bytes:
            self.single_bytes -= 1
            raw, self._buffer = self._buffer[:1], self._buffer[1:]
            yield Message("", raw)
        while len(self._buffer) >= HEADER_BYTES:
            end = 1 + int.from_bytes(self._buffer[1:5], "big")
            if len(self._buffer) < end:
                return
            raw, self._buffer = self._buffer[:end], self._buffer[end:]
            yield Message(chr(raw[0]), raw)


def _text(data: bytes) -> str:
    return data.partition(b"\x00")[0].decode("utf-8", "replace")


def _is_commit(text: str) -> bool:
    return text.strip().rstrip(";").strip().upper() == COMMIT


@dataclass(slots=True)
class CommitWatch:
    """Follows one session and tells at which message a COMMIT begins whose transaction is of interest.

    ``interesting``: looks at the text of each statement of the transaction; one hit is enough.
    """

    interesting: Callable[[str], bool]
    _statements: dict[bytes, str] = field(default_factory=dict)
    _hit: bool = False

    def begins_commit(self, message: Message) -> bool:
        """Take the next message of the client; True when it is the first one of a COMMIT of interest."""
        text = self._statement(message)
        if text is None:
            return False
        if not _is_commit(text):
            if text.strip().upper().startswith("ROLLBACK") and "TO" not in text.upper().split():
                self._hit = False
            else:
                self._hit = self._hit or self.interesting(text)
            return False
        hit, self._hit = self._hit, False  # so that the Bind behind a parsed COMMIT does not count it again
        return hit

    def _statement(self, message: Message) -> str | None:
        """Return the text that a message will run: of a query, of a parsed COMMIT, or of the statement bound."""
        match message.kind:
            case "Q":
                return _text(message.payload)
            case "P":
                name, _, rest = message.payload.partition(b"\x00")
                self._statements[name] = text = _text(rest)
                return text if _is_commit(text) else None
            case "B":
                _, _, rest = message.payload.partition(b"\x00")
                return self._statements.get(rest.partition(b"\x00")[0])
            case _:
                return None


def command_tag(message: Message) -> str | None:
    """Return the tag of a CommandComplete (``COMMIT``, ``INSERT 0 1`` ...), None for other messages."""
    return _text(message.payload) if message.kind == "C" else None
