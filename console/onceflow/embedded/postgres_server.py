"""One real PostgreSQL server on a folder of its own.

Rule: an acknowledged commit is on disk (fsync and synchronous_commit stay on), whatever the caller sets otherwise.
The server listens on TCP only, so that a proxy can stand between it and its clients.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psycopg

from onceflow.embedded.child_process import (
    Command,
    ends_within,
    last_line,
    log_since,
    log_size,
    open_log,
    start_child,
    stop_child,
)
from onceflow.embedded.data_folder import DataFolder
from onceflow.embedded.ports import HOST, REMEMBERED_GRACE_SECONDS, accepts_connections, claim_ports, is_free
from onceflow.embedded.postgres_cluster import DATABASE, ENVIRONMENT, USER, PostgresCluster, find_program
from onceflow.embedded.postgres_identity import choose_identity
from onceflow.embedded.postgres_orphans import end_orphans
from onceflow_schemas.failure import Unavailable

READY_TIMEOUT_SECONDS = 60.0
CONNECT_TIMEOUT_SECONDS = 2
# Fast shutdown first; immediate shutdown ends backends that do not listen.
STOP_STEPS = ((signal.SIGINT, 10.0), (signal.SIGQUIT, 7.0))
# After kill -9 the backends of the dead postmaster hold its shared memory, and a new one is refused until the last of
# them is gone.  ``end_orphans`` ends them, where the system lets it; elsewhere it took 4 to 6 tries.
START_TRIES_MAX = 100
RETRY_SECONDS = 0.2
POLL_SECONDS = 0.05
PASSING = ("could not bind", "is still in use", 'lock file "postmaster.pid" already exists')

_SETTINGS = {
    "shared_buffers": "128MB",
    "fsync": "on",
    "synchronous_commit": "on",
    "unix_socket_directories": "",
    "log_checkpoints": "off",
    # Statements and details of errors hold values of rows, and logs never hold personal data.
    "log_error_verbosity": "terse",
    "log_min_error_statement": "panic",
    # An ERROR's message may quote a customer's text.  In this order of levels LOG (starts, crashes, connections) is above.
    "log_min_messages": "log",
}


class PostgresServer:
    """A server that can be started, killed and started again on the same folder.

    Args:
        folder: the claimed data folder.
        progress: called with one line per step.
        extra_settings: server settings that win over ours.
    """

    def __init__(
        self,
        folder: DataFolder,
        *,
        progress: Callable[[str], None],
        extra_settings: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._progress = progress
        self._settings = {**_SETTINGS, **(extra_settings or {})}
        self._cluster: PostgresCluster | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._log_start = 0
        self._started_at = 0.0

    @property
    def url(self) -> str:
        """The libpq address of the database ``onceflow``, with its password: never print it."""
        assert self._cluster is not None, "the server was never started"
        return f"postgresql://{USER}:{self._cluster.password()}@{HOST}:{self._port}/{DATABASE}"

    @property
    def port(self) -> int:
        """The port of the latest start."""
        return self._port

    @property
    def pid(self) -> int | None:
        """The process id of the postmaster itself; None before the first start."""
        return None if self._child is None else self._child.pid

    def poll(self) -> int | None:
        """Return the exit code of a server that has ended, None while it runs."""
        assert self._child is not None, "the server was never started"
        return self._child.poll()

    def start(self) -> None:
        """Make the cluster when there is none and start the server; returns before it answers.

        Raises:
            Misconfigured: ``root_not_possible``, ``data_folder_version`` or ``embedded_missing``.
            Unavailable: ``service_failed``.
        """
        assert self._child is None or self._child.poll() is not None, "the server runs already"
        self._started_at = time.monotonic()
        program = find_program("postgres")
        if self._cluster is None:
            self._cluster = PostgresCluster(self._folder.postgres, choose_identity(program, self._folder.root))
        end_orphans(program, self._cluster.data)
        self._cluster.make(self._progress)
        self._choose_port(REMEMBERED_GRACE_SECONDS)
        self._launch()

    def wait_ready(self, timeout_seconds: float = READY_TIMEOUT_SECONDS) -> None:
        """Wait until a client can connect; see START_TRIES_MAX for why it may be started several times.

        Raises:
            Unavailable: ``service_failed``.
        """
        assert self._child is not None, "the server was never started"
        deadline = time.monotonic() + timeout_seconds
        tries = 1
        while True:
            ended = self._child.poll() is not None
            if not ended and self._answers():
                break
            if time.monotonic() >= deadline or (ended and (tries >= START_TRIES_MAX or not self._may_retry())):
                raise self._failure("did not start" if ended else f"did not answer within {timeout_seconds:.0f} s")
            if ended:
                tries += 1
                time.sleep(RETRY_SECONDS)
                self._launch()
            ends_within(self._child, POLL_SECONDS)
        seconds = time.monotonic() - self._started_at
        self._progress(f"postgres: ready on {HOST}:{self._port} after {seconds:.1f} s")

    def stop(self) -> None:
        """End the server cleanly, by force when it takes too long; harmless when it does not run."""
        if self._child is not None:
            stop_child(self._child, STOP_STEPS)

    def _choose_port(self, grace_seconds: float) -> None:
        book = self._folder.postgres / "ports.json"
        self._port = claim_ports(book, ["server"], grace_seconds=grace_seconds)["server"]

    def _launch(self) -> None:
        assert self._cluster is not None
        settings = {**self._settings, "listen_addresses": HOST, "port": str(self._port)}
        arguments = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = Command(
            [str(find_program("postgres")), "-D", self._cluster.data.name, *arguments],
            directory=self._folder.postgres,
            death_signal=signal.SIGQUIT,
            identity=self._cluster.identity.launch,
            environment=ENVIRONMENT,
        )
        self._log_start = log_size(self._log)
        with open_log(self._log) as log:
            self._child = start_child(command, log=log)

    def _may_retry(self) -> bool:
        """Say whether the end of the server passes by itself; a port that was taken meanwhile is replaced here."""
        if not is_free(self._port):
            self._choose_port(0.0)
            return True
        said = log_since(self._log, self._log_start)
        return any(text in said for text in PASSING)

    def _answers(self) -> bool:
        if not accepts_connections(self._port):
            return False
        try:
            psycopg.connect(self.url, connect_timeout=CONNECT_TIMEOUT_SECONDS).close()
        except psycopg.OperationalError:
            return False
        return True

    @property
    def _log(self) -> Path:
        return self._folder.logs / "postgres.log"

    def _failure(self, what: str) -> Unavailable:
        said = last_line(log_since(self._log, self._log_start))
        return Unavailable(
            "service_failed", f"PostgreSQL {what}{f'; it said: {said}' if said else ''}", f"Read {self._log}."
        )
