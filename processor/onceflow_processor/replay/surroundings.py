"""What running events in a replay needs around it: a checked connection, settings, and how to stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from psycopg import Connection

from onceflow_processor.replay.runs import Place
from onceflow_processor.worker import WorkerSettings


@dataclass(slots=True, kw_only=True)
class Surroundings:
    """Attributes: ``connection`` is idle between batches, and another one after a handler spoiled it."""

    connection: Connection[Any]
    settings: WorkerSettings
    place: Place
    handler_deadline_seconds: float
    open_database: Callable[[], Connection[Any]]
    stopping: Callable[[], bool]
    wait: Callable[[float], object]

    def reconnect(self) -> None:
        """Take a new connection, checked as the first one was."""
        self.connection.close()
        self.connection = self.open_database()
