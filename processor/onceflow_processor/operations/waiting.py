"""What the ledger thread waits for: a finished call, a word from PostgreSQL that operations were asked for, or time.

Rule: a lost word costs one poll and nothing else.
"""

from __future__ import annotations

import selectors
import socket
import threading
from typing import Any

import psycopg
from psycopg import Connection

from onceflow_schemas.sql import queries

_SQL = queries("operation_work")
_DRAIN_BYTES = 4096


class Waiting:
    """``ring`` may be called from any thread, everything else from the ledger's."""

    def __init__(self) -> None:
        self._inner, self._outer = socket.socketpair()
        self._inner.settimeout(0)
        self._outer.settimeout(0)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._inner, selectors.EVENT_READ)
        self._rung = threading.Event()
        self._connection: Connection[Any] | None = None

    def ring(self) -> None:
        """Something has happened that the ledger should look at."""
        if not self._rung.is_set():
            self._rung.set()
            self._outer.send(b"\0")

    def listen(self, connection: Connection[Any]) -> None:
        """Be woken by a connection in autocommit, until another one is given.

        Raises:
            psycopg.Error: the database did not answer.
        """
        self.forget()
        connection.execute(_SQL["wake_me"])
        self._selector.register(connection.fileno(), selectors.EVENT_READ)
        self._connection = connection

    def forget(self) -> None:
        """The connection is about to be closed."""
        if self._connection is not None:
            for key in [key for key in self._selector.get_map().values() if key.fileobj is not self._inner]:
                self._selector.unregister(key.fileobj)
            self._connection = None

    def wait(self, seconds_max: float) -> bool:
        """Wait; True when PostgreSQL has told us something.

        Raises:
            psycopg.Error: the listening connection is gone.
        """
        ready = self._selector.select(seconds_max)
        told = False
        for key, _ in ready:
            if key.fileobj is self._inner:
                self._inner.recv(_DRAIN_BYTES)
            elif self._connection is not None:
                # What else may have come over it (parameters, a shutdown) is read as well.
                told = bool(list(self._connection.notifies(timeout=0)))
                if self._connection.closed:
                    raise psycopg.OperationalError("the listening connection is gone")
        self._rung.clear()
        return told

    def close(self) -> None:
        """Let go of everything."""
        self.forget()
        self._selector.close()
        self._inner.close()
        self._outer.close()
