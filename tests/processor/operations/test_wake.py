"""Wake-ups of the workers of operations: quick when it works, and of no consequence when it does not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from onceflow_processor.operations import wake as wake_module
from onceflow_processor.operations.wake import WakeUp, wake_up_over
from onceflow_schemas.failure import Unavailable

WAIT_SECONDS_MAX = 10.0


@contextmanager
def listening(url: str) -> Iterator[Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("LISTEN onceflow_operations")
        yield connection


def heard(connection: Connection[Any], *, count: int = 1) -> int:
    return len(list(connection.notifies(timeout=WAIT_SECONDS_MAX, stop_after=count)))


def test_a_wake_up_is_heard(empty_database: str) -> None:
    wake_up = wake_up_over(empty_database, prepared=True)
    with listening(empty_database) as worker:
        for _ in range(2):
            wake_up.wake()
            assert heard(worker) == 1
    wake_up.close()


def test_nothing_is_opened_before_the_first(empty_database: str) -> None:
    opened: list[int] = []

    def open_one() -> Connection[Any]:
        opened.append(1)
        return psycopg.connect(empty_database, autocommit=True)

    wake_up = WakeUp(open_one)
    assert opened == []
    wake_up.close()
    assert opened == []


def test_a_database_that_is_away_holds_nobody_up(monkeypatch: pytest.MonkeyPatch, empty_database: str) -> None:
    monkeypatch.setattr(wake_module, "RETRY_SECONDS", 0.05)
    away = [Unavailable("database_unavailable", "no answer"), psycopg.OperationalError("gone")]

    def open_one() -> Connection[Any]:
        if away:
            raise away.pop()
        return psycopg.connect(empty_database, autocommit=True)

    wake_up = WakeUp(open_one)
    with listening(empty_database) as worker:
        begun = time.monotonic()
        wake_up.wake()
        assert time.monotonic() - begun < 1.0
        assert heard(worker) == 1, "it is told when the database is there again"
    wake_up.close()


def test_a_connection_that_was_cut_is_replaced(monkeypatch: pytest.MonkeyPatch, empty_database: str) -> None:
    monkeypatch.setattr(wake_module, "RETRY_SECONDS", 0.05)
    opened: list[Connection[Any]] = []

    def open_one() -> Connection[Any]:
        opened.append(psycopg.connect(empty_database, autocommit=True))
        return opened[-1]

    wake_up = WakeUp(open_one)
    with listening(empty_database) as worker:
        wake_up.wake()
        assert heard(worker) == 1
        worker.execute("SELECT pg_terminate_backend(%s)", [opened[0].info.backend_pid])
        wake_up.wake()
        assert heard(worker) == 1
    wake_up.close()
    assert len(opened) == 2
    assert all(connection.closed for connection in opened)


def test_the_end_does_not_wait_for_a_database_that_is_away() -> None:
    def away() -> Connection[Any]:
        raise Unavailable("database_unavailable", "no answer")

    wake_up = WakeUp(away)
    wake_up.wake()
    begun = time.monotonic()
    wake_up.close()
    assert time.monotonic() - begun < 1.0
