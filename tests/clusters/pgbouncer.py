"""Debian's PgBouncer in transaction mode, in front of one database."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.waiting import wait_until

PLAIN_USER = "nobody"
START_SECONDS = 20.0
SERVER_CONNECTIONS = 3
"""Fewer than our parts have, so that they share."""


class PgBouncer:
    """A pooler; a context manager.

    Args:
        folder: for its configuration and log.
        database_url: of the server behind it.
        server_connections: how many it opens there.
    """

    def __init__(self, folder: Path, database_url: str, *, server_connections: int = SERVER_CONNECTIONS) -> None:
        program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
        assert program is not None, "this test needs PgBouncer: apt-get install pgbouncer"
        self._program = program
        self._folder = folder
        self._target = conninfo_to_dict(database_url)
        self._server_connections = server_connections
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]

    @property
    def url(self) -> str:
        """The same database through the pooler."""
        user, database = self._target["user"], self._target["dbname"]
        return make_conninfo(host="127.0.0.1", port=self._port, user=user, dbname=database)

    def __enter__(self) -> Self:
        server = " ".join(f"{name}={self._target[name]}" for name in ("host", "port", "dbname", "user", "password"))
        users = self._folder / "users.txt"
        users.write_text(f'"{self._target["user"]}" "{self._target["password"]}"\n')
        configuration = self._folder / "pgbouncer.ini"
        lines = [
            "[databases]",
            f"{self._target['dbname']} = {server}",
            "[pgbouncer]",
            "listen_addr = 127.0.0.1",
            f"listen_port = {self._port}",
            "unix_socket_dir =",
            "auth_type = trust",
            f"auth_file = {users}",
            "pool_mode = transaction",
            f"default_pool_size = {self._server_connections}",
        ]
        configuration.write_text("\n".join(lines) + "\n")
        # It refuses to be root; its files are read before it becomes somebody else.
        user = ["-u", PLAIN_USER] if os.geteuid() == 0 else []
        self._log = self._folder / "pgbouncer.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([self._program, *user, str(configuration)], stdout=log, stderr=log)
        wait_until(self._answers, within_seconds=START_SECONDS, why=f"PgBouncer: {self._log}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(START_SECONDS)

    def _answers(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True
