"""A test's database, copied whole and put back later under its own name: what a restore of a backup is to the services."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo


class DatabaseCopies:
    """Copies of one database.  Nobody may be connected to it while one is taken; whoever is when one is put back is cut off."""

    def __init__(self, url: str) -> None:
        self._name = str(conninfo_to_dict(url)["dbname"])
        self._server = make_conninfo(url, dbname="postgres")
        self._taken: list[str] = []

    def take(self) -> str:
        """Copy the database as it is now; return the copy's name."""
        copy = f"copy_{uuid.uuid4().hex[:12]}"
        self._taken.append(copy)
        self._run("CREATE DATABASE {} TEMPLATE {}", copy, self._name)
        return copy

    def put_back(self, copy: str) -> None:
        """Let the database be what it was; the copy stays."""
        self._run("DROP DATABASE {} WITH (FORCE)", self._name)
        self._run("CREATE DATABASE {} TEMPLATE {}", self._name, copy)

    def drop(self) -> None:
        """Remove all copies."""
        for copy in self._taken:
            self._run("DROP DATABASE IF EXISTS {} WITH (FORCE)", copy)

    def _run(self, statement: str, *names: str) -> None:
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


@contextmanager
def copies_of(url: str) -> Iterator[DatabaseCopies]:
    """Copies that are gone afterwards."""
    copies = DatabaseCopies(url)
    try:
        yield copies
    finally:
        copies.drop()
