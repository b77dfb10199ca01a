"""Debian's PostgreSQL 15, the oldest that is supported, on a folder and a port of its own."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from onceflow.embedded.child_process import Command, open_log, run_to_end, start_child, stop_child
from onceflow.embedded.ports import choose_port
from onceflow.embedded.postgres_identity import choose_identity, own
from tests.waiting import wait_until

PROGRAMS = Path("/usr/lib/postgresql/15/bin")
ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/bin:/bin"}
INIT_SECONDS = 120.0
START_SECONDS = 60.0
STOP_STEPS = ((signal.SIGINT, 10.0), (signal.SIGQUIT, 7.0))


class Postgres15:
    """A server whose users are all believed, on 127.0.0.1; a context manager.

    Args:
        folder: where its data and log are made.
    """

    def __init__(self, folder: Path) -> None:
        assert (PROGRAMS / "postgres").exists(), "this test needs PostgreSQL 15: apt-get install postgresql-15"
        self._folder = folder
        self._port = choose_port(taken=())

    @property
    def url(self) -> str:
        """The address of its database."""
        return f"host=127.0.0.1 port={self._port} user=postgres dbname=postgres"

    def __enter__(self) -> Self:
        data = self._folder / "cluster"
        data.mkdir()
        identity = choose_identity(PROGRAMS / "postgres", self._folder)
        own(data, identity)
        words = [str(PROGRAMS / "initdb"), "-D", "cluster", "--username=postgres", "--auth=trust", "--encoding=UTF8"]
        command = Command(
            [*words, "--locale=C", "--no-instructions", "--no-sync"],
            directory=self._folder,
            identity=identity.launch,
            environment=ENVIRONMENT,
        )
        made = run_to_end(command, timeout_seconds=INIT_SECONDS)
        assert made.exit_code == 0, made.output
        words = [str(PROGRAMS / "postgres"), "-D", "cluster", "-h", "127.0.0.1", "-p", str(self._port), "-k", ""]
        server = Command(words, directory=self._folder, identity=identity.launch, environment=ENVIRONMENT)
        with open_log(self._folder / "postgres-15.log") as log:
            self._child: subprocess.Popen[bytes] = start_child(server, log=log)
        wait_until(self._answers, within_seconds=START_SECONDS, why="PostgreSQL 15 does not answer")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop_child(self._child, STOP_STEPS)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True
