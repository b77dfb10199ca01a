"""The real server: open by password only, and up again after every kind of death."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from onceflow.embedded.data_folder import DataFolder
from onceflow.embedded.postgres_server import PostgresServer
from onceflow_schemas.failure import Unavailable
from tests.checker.waiting import wait_for
from tests.embedded.process_state import kill_hard, wait_gone

BUSY = "SELECT sum(length(md5(i::text))) FROM generate_series(1, 1000000000) AS i"


@pytest.fixture(scope="module")
def module_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataFolder]:
    folder = DataFolder(tmp_path_factory.mktemp("postgres"))
    folder.claim()
    yield folder
    folder.release()


@pytest.fixture(scope="module")
def module_server(module_folder: DataFolder) -> Iterator[PostgresServer]:
    server = PostgresServer(module_folder, progress=print, extra_settings={"max_connections": "50"})
    yield server
    server.stop()


@pytest.fixture
def server(module_server: PostgresServer) -> PostgresServer:
    if module_server.pid is None or module_server.poll() is not None:
        module_server.start()
    module_server.wait_ready()
    return module_server


def show(server: PostgresServer, setting: str) -> str:
    with psycopg.connect(server.url) as connection:
        row = connection.execute(f"SHOW {setting}").fetchone()
    assert row is not None
    return str(row[0])


def test_settings(server: PostgresServer) -> None:
    assert show(server, "server_version").startswith("18.")
    assert show(server, "fsync") == "on"
    assert show(server, "synchronous_commit") == "on"
    assert show(server, "server_encoding") == "UTF8"
    assert show(server, "shared_buffers") == "128MB"
    assert show(server, "listen_addresses") == "127.0.0.1"
    assert show(server, "unix_socket_directories") == ""
    assert show(server, "max_connections") == "50"
    assert psycopg.conninfo.conninfo_to_dict(server.url)["dbname"] == "onceflow"


def test_a_wrong_password_is_refused(server: PostgresServer) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(make_conninfo(server.url, password="guessed"))


def test_its_log_holds_no_values_of_rows(server: PostgresServer, module_folder: DataFolder) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TEMP TABLE customer (mail text PRIMARY KEY)")
        connection.execute("INSERT INTO customer VALUES ('jane@example.org')")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("INSERT INTO customer VALUES ('jane@example.org')")
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            connection.execute("SELECT 'jane@example.org'::integer")
    # What the server says later stands later in its log, so by then an error would be there.
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(server.url, dbname="no_such_database")
    log = wait_for(
        lambda: _containing(module_folder.logs / "postgres.log", "no_such_database"), limit_seconds=20, what="the log"
    )
    assert "jane" not in log


def _containing(path: Path, words: str) -> str | None:
    text = path.read_text()
    return text if words in text else None


def test_a_clean_stop_and_a_second_start_keep_port_and_data(server: PostgresServer) -> None:
    with psycopg.connect(server.url) as connection:
        connection.execute("DROP TABLE IF EXISTS kept")
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    url, pid = server.url, server.pid
    server.stop()
    assert server.poll() == 0
    server.stop()
    server.start()
    server.wait_ready()
    assert (server.url, server.pid != pid) == (url, True)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchall() == [(42,)]


def test_it_comes_back_after_kill_9_while_a_backend_computes(server: PostgresServer) -> None:
    """The busy backend outlives its postmaster, and PostgreSQL refuses to start beside it."""
    backends: list[int] = []
    ended = threading.Event()

    def compute() -> None:
        connection = psycopg.connect(server.url)
        backends.append(connection.info.backend_pid)
        with pytest.raises(psycopg.OperationalError):
            connection.execute(BUSY)
        connection.close()
        ended.set()

    thread = threading.Thread(target=compute)
    thread.start()
    with psycopg.connect(server.url, autocommit=True) as connection:
        wait_for(
            lambda: connection.execute(
                "SELECT 1 FROM pg_stat_activity WHERE query = %s AND state = 'active'", [BUSY]
            ).fetchone(),
            limit_seconds=40,
            what="a backend computes",
        )
    url = server.url
    kill_hard(server.pid)
    assert server.poll() == -signal.SIGKILL
    server.start()
    server.wait_ready()
    assert server.url == url
    assert ended.wait(10)
    thread.join()
    wait_gone(*backends)
    assert show(server, "fsync") == "on"


def test_a_paused_server_can_be_stopped(server: PostgresServer) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    server.stop()
    assert server.poll() == 0


def test_a_port_that_is_taken_in_the_last_moment_is_replaced(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.stop()
    launch = PostgresServer._launch
    thieves: list[socket.socket] = []

    def launch_too_late(self: PostgresServer) -> None:
        if not thieves:
            thieves.append(socket.create_server(("127.0.0.1", self.port)))
        launch(self)

    monkeypatch.setattr(PostgresServer, "_launch", launch_too_late)
    server.start()
    stolen = server.port
    try:
        server.wait_ready()
        assert server.port != stolen
        assert show(server, "port") == str(server.port)
    finally:
        thieves[0].close()


def test_a_setting_that_is_wrong_is_said(folder: DataFolder) -> None:
    server = PostgresServer(folder, progress=print, extra_settings={"shared_buffers": "much"})
    server.start()
    with pytest.raises(Unavailable, match=r"PostgreSQL did not start; it said: .*shared_buffers") as refused:
        server.wait_ready(30)
    assert refused.value.code == "service_failed"
    assert "postgres.log" in refused.value.hint
    server.stop()
