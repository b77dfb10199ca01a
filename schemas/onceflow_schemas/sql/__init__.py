"""The SQL of the product, in named files, and the loader that hands it out.

Rule: no SQL text stands in Python.  A query's name says what it does; the comment under the name says why
it is written so, its isolation need and the index that it relies on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType

_PART = re.compile(r"^-- (name|fragment): ([a-z][a-z0-9_]*)$", re.MULTILINE)
_INCLUDE = re.compile(r"^-- include: ([a-z][a-z0-9_]*)$", re.MULTILINE)
_MIGRATION_FILE = re.compile(r"(\d{14})_([a-z0-9_]+)\.sql")
_UP = re.compile(r"^-- migrate:up(.*)$", re.MULTILINE)
_DOWN = re.compile(r"^-- migrate:down(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Migration:
    """One file in dbmate's form; ``version`` is the 14 digits before its name."""

    version: str
    name: str
    up: str
    down: str
    transactional: bool
    sha256: str


@cache
def queries(file_name: str) -> Mapping[str, bytes]:
    """Return the queries of ``sql/<file_name>.sql`` by name, as the bytes that psycopg takes.

    A query begins at a line ``-- name: <query>`` and ends at the next one.  What several queries have in common begins at a
    line ``-- fragment: <name>`` and stands where a query, or a fragment, says ``-- include: <name>``.

    Raises:
        ValueError: when a name is given twice in one file, or a fragment is missing.
        FileNotFoundError: when there is no such file.
    """
    parts = _PART.split((files(__package__) / f"{file_name}.sql").read_text("utf-8"))
    found: dict[str, str] = {}
    fragments: dict[str, str] = {}
    for kind, name, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        if name in found or name in fragments:
            message = f"the query {name} stands twice in {file_name}.sql"
            raise ValueError(message)
        (found if kind == "name" else fragments)[name] = text
    return MappingProxyType({name: _whole(text, fragments).encode() for name, text in found.items()})


@cache
def migrations() -> tuple[Migration, ...]:
    """Return all migrations in the order of their versions.

    Raises:
        ValueError: when a file is not in dbmate's form or a version stands twice.
    """
    folder = files(__package__) / "migrations"
    found = [
        _read_migration(entry.name, entry.read_text("utf-8"))
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    ]
    found.sort(key=lambda migration: migration.version)
    if len({migration.version for migration in found}) != len(found):
        message = "two migrations have the same version"
        raise ValueError(message)
    return tuple(found)


def _read_migration(file_name: str, text: str) -> Migration:
    name = _MIGRATION_FILE.fullmatch(file_name)
    up, down = _UP.search(text), _DOWN.search(text)
    if name is None or up is None or down is None or down.start() < up.start():
        message = f"{file_name} is not in dbmate's form"
        raise ValueError(message)
    return Migration(
        version=name[1],
        name=name[2],
        up=text[up.end() : down.start()].strip(),
        down=text[down.end() :].strip(),
        transactional="transaction:false" not in up[1],
        sha256=hashlib.sha256(text.encode()).hexdigest(),
    )


def _whole(text: str, fragments: Mapping[str, str]) -> str:
    def fragment(include: re.Match[str]) -> str:
        if include[1] not in fragments:
            message = f"there is no fragment {include[1]}"
            raise ValueError(message)
        return _INCLUDE.sub(fragment, fragments[include[1]].strip("\n"))

    return _without_comments(_INCLUDE.sub(fragment, text))


def _without_comments(text: str) -> str:
    """Drop whole-line comments, so that the server's statistics show the statement and not our reasons."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--")).strip()
