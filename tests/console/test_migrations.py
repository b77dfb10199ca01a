"""The runner on a real PostgreSQL: once each, one at a time, all or nothing, in dbmate's book."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psycopg
import pytest

from onceflow.database import connect
from onceflow.migrations import migrate, pending_sql, schema_state
from onceflow_processor.schema_check import check_schema
from onceflow_schemas.failure import Misconfigured, Unavailable
from onceflow_schemas.sql import Migration, migrations

FIRST = Migration(
    "20990101000000", "first", "CREATE TABLE onceflow.one (id int)", "", transactional=True, sha256="a" * 64
)
SECOND = Migration(
    "20990102000000", "second", "CREATE TABLE onceflow.two (id int);\nINSERT INTO onceflow.two VALUES (1)", "",
    transactional=True, sha256="b" * 64,
)  # fmt: skip
BROKEN = Migration(
    "20990103000000",
    "broken",
    "CREATE TABLE onceflow.three (id int); SELECT 1 / 0",
    "",
    transactional=True,
    sha256="c" * 64,
)
OUTSIDE = Migration(
    "20990104000000",
    "outside",
    "CREATE INDEX CONCURRENTLY two_id ON onceflow.two (id)",
    "",
    transactional=False,
    sha256="d" * 64,
)


def versions(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT version FROM onceflow.schema_migrations ORDER BY 1").fetchall()
    return [version for (version,) in rows]


def code_of_check(url: str) -> str:
    with psycopg.connect(url) as connection:
        try:
            check_schema(connection)
        except Misconfigured as fault:
            return fault.code
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    return "ok"


def test_a_new_database_gets_every_migration_once(empty_database: str) -> None:
    assert code_of_check(empty_database) == "schema_missing"
    lines: list[str] = []
    with connect(empty_database, role="test") as connection:
        assert migrate(connection, progress=lines.append) == list(migrations())
        assert migrate(connection, progress=lines.append) == []
    assert len(lines) == len(migrations())
    assert versions(empty_database) == [one.version for one in migrations()]
    assert code_of_check(empty_database) == "ok"


def test_a_newer_schema_is_refused_by_services_and_runner(empty_database: str) -> None:
    with connect(empty_database, role="test") as connection:
        migrate(connection, release=[*migrations(), FIRST])
    assert code_of_check(empty_database) == "schema_ahead"
    with connect(empty_database, role="test") as connection, pytest.raises(Misconfigured) as ahead:
        migrate(connection)
    assert ahead.value.code == "schema_ahead"
    assert FIRST.version in ahead.value.message


def test_a_changed_file_is_noticed(empty_database: str) -> None:
    with connect(empty_database, role="test") as connection:
        migrate(connection)
        other = [replace(migrations()[0], sha256="0" * 64), *migrations()[1:]]
        assert schema_state(connection, other).changed == (other[0],)
        with pytest.raises(Misconfigured) as changed:
            migrate(connection, release=other)
    assert changed.value.code == "schema_changed"


def test_a_failing_migration_leaves_nothing_and_those_before_it_stay(empty_database: str) -> None:
    release = [FIRST, SECOND, BROKEN]
    with connect(empty_database, role="test") as connection, pytest.raises(Misconfigured) as failed:
        migrate(connection, release=release)
    assert failed.value.code == "migration_failed"
    assert "20990103000000_broken failed: division by zero" in failed.value.message
    assert versions(empty_database) == [FIRST.version, SECOND.version]
    with psycopg.connect(empty_database) as connection:
        assert connection.execute("SELECT to_regclass('onceflow.three')").fetchone() == (None,)


def test_what_cannot_be_in_a_transaction_runs_outside(empty_database: str) -> None:
    with connect(empty_database, role="test") as connection:
        assert migrate(connection, release=[FIRST, SECOND, OUTSIDE]) == [FIRST, SECOND, OUTSIDE]
    with psycopg.connect(empty_database) as connection:
        assert connection.execute("SELECT to_regclass('onceflow.two_id')::text").fetchone() == ("onceflow.two_id",)


def test_two_runners_at_once_apply_each_migration_once(empty_database: str) -> None:
    barrier = threading.Barrier(4)

    def run() -> list[Migration]:
        with connect(empty_database, role="test") as connection:
            barrier.wait(10)
            return migrate(connection, release=[*migrations(), FIRST, SECOND])

    with ThreadPoolExecutor(4) as pool:
        results = [running.result(60) for running in [pool.submit(run) for _ in range(4)]]
    applied = sorted(one.version for result in results for one in result)
    assert applied == [*(one.version for one in migrations()), FIRST.version, SECOND.version]


def test_a_runner_gives_up_on_a_lock_that_is_held_too_long(empty_database: str) -> None:
    with connect(empty_database, role="test") as connection:
        migrate(connection, release=[FIRST])
    slow = replace(SECOND, up="SET LOCAL lock_timeout = '200ms'; ALTER TABLE onceflow.one ADD name text")
    with psycopg.connect(empty_database) as holder, connect(empty_database, role="test") as connection:
        holder.execute("LOCK TABLE onceflow.one IN ACCESS SHARE MODE")
        with pytest.raises(Unavailable) as locked:
            migrate(connection, release=[FIRST, slow])
    assert locked.value.code == "database_unavailable"
    assert "waited too long for a lock" in locked.value.message


def test_versions_that_another_tool_applied_are_adopted(empty_database: str) -> None:
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA onceflow")
        connection.execute("CREATE TABLE onceflow.schema_migrations (version varchar NOT NULL PRIMARY KEY)")
        connection.execute("INSERT INTO onceflow.schema_migrations VALUES (%s)", [FIRST.version])
        connection.execute(FIRST.up.encode())
    with connect(empty_database, role="test") as connection:
        assert schema_state(connection, [FIRST]).unrecorded == (FIRST,)
        assert migrate(connection, release=[FIRST, SECOND]) == [SECOND]
        state = schema_state(connection, [FIRST, SECOND])
    assert (state.unrecorded, state.pending, state.changed) == ((), (), ())


def test_the_printed_sql_does_what_the_runner_does(empty_database: str) -> None:
    with connect(empty_database, role="test") as connection:
        text = pending_sql(schema_state(connection))
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute(text.encode())
    assert code_of_check(empty_database) == "ok"
    with connect(empty_database, role="test") as connection:
        assert pending_sql(schema_state(connection)) == ""
        assert migrate(connection) == []
