"""A running system of a former release, which is brought to this one, and back, while webhooks come in.

Rule: the former release runs from its own sources, taken from the repository's history; only its libraries are today's.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg

from onceflow_schemas.sql import migrations
from tests.chaos.fault import NotFired
from tests.chaos.part_process import ROOT
from tests.chaos.world import World
from tests.load.counted_payments import EFFECT_TABLE

FORMER_COMMIT = "3e08c09"
"""The last one before events could be parked."""
FORMER_VERSION = "20260103000000"
PACKAGES = ("schemas", "producer", "processor", "simulator", "console")
COMMAND_SECONDS = 90.0
TRIES_MAX = 5


class UpgradeWorld(World):
    """See the module; parts whose names are in ``former`` run the former release."""

    def __init__(self, folder: Path, *, seed: int) -> None:
        super().__init__(folder, seed=seed)
        self.former = set(self.commands)
        self._sources = folder / "former"
        self._commands = 0

    def start(self) -> None:
        """Take the former sources, then start everything of them."""
        self._sources.mkdir(parents=True)
        asked = ["git", "archive", "--format=tar", FORMER_COMMIT, *PACKAGES]
        taken = subprocess.run(asked, cwd=ROOT, capture_output=True, check=False, timeout=60)
        if taken.returncode != 0:
            raise NotFired(
                f"{FORMER_COMMIT} is not in this checkout's history (a shallow one?): {taken.stderr.decode()}"
            )
        with tarfile.open(fileobj=io.BytesIO(taken.stdout)) as archive:
            archive.extractall(self._sources, filter="data")
        super().start()

    def run(self, *arguments: str, former: bool = False, tries_max: int = 1) -> None:
        """Run a command of one of the two releases to its end; raises AssertionError when it does not end with 0."""
        said = ""
        for _ in range(tries_max):
            self._commands += 1
            name = f"command-{self._commands}"
            self.former |= {name} if former else set()
            part = self.part(name, role="processor", command=list(arguments))
            part.start()
            code = part.wait_ended(COMMAND_SECONDS)
            if code == 0:
                return
            said = f"ended with {code}: {part.last_words()}"
        raise AssertionError(f"{' '.join(arguments)} {said}")

    def replace_all(self, *, former: bool) -> None:
        """Stop what runs, and start every part in one of the two releases."""
        for part in [*self.extras, *self.parts.values()]:
            if part.alive:
                part.stop()
        self.extras.clear()
        self.former = set(self.commands) if former else set()
        for name in self.commands:
            self.restart(name)

    def join_former_refused(self, role: str) -> int:
        """Start one more part of the former release; return how it ended."""
        name = f"{role}-former"
        self.former.add(name)
        part = self.part(name, role=role)
        part.start()
        code = part.wait_ended(COMMAND_SECONDS)
        assert not part.state_file.exists(), "it said that it is ready"
        return code

    def migrate_down(self) -> None:
        """Undo every migration that the former release does not have, as dbmate's rollback does."""
        with psycopg.connect(self.database_url) as connection:
            for one in reversed(migrations()):
                if one.version > FORMER_VERSION:
                    connection.execute(one.down.encode())
                    for book in ("schema_migrations", "migration_checksum"):
                        connection.execute(f"DELETE FROM onceflow.{book} WHERE version = %s".encode(), [one.version])

    def _prepare(self) -> None:
        self.run("migrate", former=True)
        self.run("topics", "apply", former=True)
        schema = EFFECT_TABLE.partition(".")[0]
        self.rows(f"CREATE SCHEMA {schema}")
        self.rows(f"CREATE TABLE {EFFECT_TABLE} (event_id text NOT NULL)")

    def _environment(self, name: str, role: str, overrides: Mapping[str, Any]) -> dict[str, str]:
        environment = super()._environment(name, role, overrides)
        if name in self.former:
            former = [str(self._sources / package) for package in PACKAGES]
            environment["PYTHONPATH"] = os.pathsep.join([*former, environment["PYTHONPATH"]])
        return environment
