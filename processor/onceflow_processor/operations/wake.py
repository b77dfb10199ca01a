"""Tells the workers of operations, after a COMMIT, that there is something to do.

Rule: a wake-up only saves time: workers look by themselves too.  So it runs in a thread with a connection of its own, may be
lost, and neither holds up nor fails what it follows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import structlog
from psycopg import Connection

from onceflow_processor.database import connect, first_line
from onceflow_schemas.failure import Unavailable
from onceflow_schemas.sql import queries

RETRY_SECONDS = 5.0
"""After a failure nothing is tried for so long; what is asked for meanwhile is told by one wake-up after it."""

CLOSE_SECONDS_MAX = 1.0

_WAKE = queries("operation_requests")["wake"]

log = structlog.get_logger("onceflow.operations")


class WakeUp:
    """Sends wake-ups; many that are asked for together become one.  The thread begins with the first."""

    def __init__(self, open_connection: Callable[[], Connection[Any]]) -> None:
        """``open_connection`` opens one in autocommit; called in the thread."""
        self._open = open_connection
        self._asked = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Ask for a wake-up; returns at once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="wake-up", daemon=True)
            self._thread.start()
        self._asked.set()

    def close(self) -> None:
        """End the thread; one that still waits for the database is left behind."""
        self._stopping.set()
        self._asked.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS_MAX)

    def _run(self) -> None:
        connection: Connection[Any] | None = None
        while True:
            self._asked.wait()
            if self._stopping.is_set():
                break
            self._asked.clear()
            try:
                if connection is None:
                    connection = self._open()
                connection.execute(_WAKE)
            except (Unavailable, psycopg.Error) as error:
                log.info("wake_up_failed", reason=first_line(error))
                if connection is not None:
                    connection.close()
                connection = None
                self._asked.set()
                self._stopping.wait(RETRY_SECONDS)
        if connection is not None:
            connection.close()


def wake_up_over(database_url: str, *, prepared: bool) -> WakeUp:
    """Return wake-ups over a connection of their own.

    Args:
        database_url: a libpq connection string or URL.
        prepared: False when a pooler in transaction mode stands between.
    """
    return WakeUp(
        lambda: connect(database_url, application_name="onceflow-wake-up", prepared=prepared, autocommit=True)
    )
