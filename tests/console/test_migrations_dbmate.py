"""The genuine dbmate and our runner make the same schema from the same files, and take over from each other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from onceflow.database import connect
from onceflow.embedded.postgres_cluster import find_program
from onceflow.migrations import migrate, schema_state
from onceflow_processor.schema_check import check_schema
from onceflow_schemas.sql import migrations

DBMATE = Path(sys.executable).with_name("dbmate")
FOLDER = str(files("onceflow_schemas.sql") / "migrations")
OURS = "onceflow.migration_checksum"


def address(url: str) -> str:
    """dbmate takes a URL; libpq's keywords are what the fixture has."""
    parts = conninfo_to_dict(url)
    return "postgres://{user}:{password}@{host}:{port}/{dbname}?sslmode=disable".format(**parts)


def dbmate(url: str, *arguments: str) -> str:
    argv = [str(DBMATE), "--url", address(url), "--migrations-dir", FOLDER, "--no-dump-schema"]
    done = subprocess.run(
        [*argv, "--migrations-table", "onceflow.schema_migrations", *arguments],
        capture_output=True, text=True, timeout=60, check=False, env={},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def dump(url: str) -> list[str]:
    """The schema as pg_dump writes it, without our book of checksums and without marks that differ in each run."""
    program = find_program("pg_dump")
    done = subprocess.run(
        [program, "--schema-only", "--no-owner", f"--exclude-table={OURS}", "--dbname", url],
        capture_output=True, text=True, timeout=60, check=True, env={},
    )  # fmt: skip
    return [line for line in done.stdout.splitlines() if line and not line.startswith(("--", "\\"))]


@pytest.fixture
def other_database(empty_database: str) -> Iterator[str]:
    """A second empty database beside the first."""
    name = f"{conninfo_to_dict(empty_database)['dbname']}_b"
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    yield make_conninfo(empty_database, dbname=name)
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def test_both_make_the_same_schema(empty_database: str, other_database: str) -> None:
    dbmate(empty_database, "migrate")
    with connect(other_database, role="test") as connection:
        migrate(connection)
    assert len(dump(empty_database)) > 50
    assert dump(empty_database) == dump(other_database)


def test_ours_goes_on_where_dbmate_ended(empty_database: str) -> None:
    dbmate(empty_database, "migrate")
    with connect(empty_database, role="test") as connection:
        check_schema(connection)
        assert schema_state(connection).unrecorded == migrations()
        assert migrate(connection) == []
        assert schema_state(connection).unrecorded == ()


def test_dbmate_knows_what_ours_has_applied(empty_database: str) -> None:
    with connect(empty_database, role="test") as connection:
        migrate(connection)
    assert "Pending: 0" in dbmate(empty_database, "status")
    dbmate(empty_database, "migrate")
