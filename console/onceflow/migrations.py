"""The migrations runner: dbmate's files and dbmate's book of versions, run under a lock, with checksums.

Rule: each migration and its line in the book are one transaction, made by one runner at a time; a second runner
waits and then finds nothing to do.  Services never migrate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from onceflow.database import unavailable
from onceflow.redaction import redacted
from onceflow_processor.schema_check import SchemaState, check_encoding, compare_schema, read_applied, schema_fault
from onceflow_producer.failpoint import hit
from onceflow_schemas.failure import Failure, Misconfigured, Unavailable
from onceflow_schemas.sql import Migration, migrations, queries


def schema_state(connection: psycopg.Connection[Any], release: Sequence[Migration] | None = None) -> SchemaState:
    """Return how the database compares with the release (this one when left out)."""
    return compare_schema(migrations() if release is None else release, read_applied(connection))


def migrate(
    connection: psycopg.Connection[Any],
    *,
    release: Sequence[Migration] | None = None,
    progress: Callable[[str], None] = lambda _line: None,
) -> list[Migration]:
    """Apply every pending migration, each in a transaction of its own.

    Args:
        connection: an idle one in the default (not autocommit) mode, of a role that may create the schema.
        release: the migrations to apply; those of this release when left out.
        progress: called with one line per migration.

    Returns:
        The migrations that this runner applied, in their order.

    Raises:
        Misconfigured: ``database_unsafe``, ``schema_ahead``, ``schema_changed``, or ``migration_failed`` with what the server said.
        Unavailable: ``database_unavailable``: the server went away, or another runner held the lock too long.
    """
    check_encoding(connection)
    release = migrations() if release is None else release
    done: list[Migration] = []
    for _ in range(len(release) + 1):
        try:
            applied = _apply_next(connection, release)
        except psycopg.errors.LockNotAvailable as error:
            raise _locked(error) from error
        except psycopg.OperationalError as error:
            raise unavailable(error) from error
        if applied is None:
            return done
        progress(f"migrate: applied {applied.version}_{applied.name}")
        done.append(applied)
    raise AssertionError("more migrations were applied than there are")


def pending_sql(state: SchemaState) -> str:
    """Return the SQL that ``migrate`` would run, for a person or another tool to run in its place."""
    sql = queries("migrate")
    parts: list[str] = []
    for migration in state.pending:
        values = {"version": migration.version, "name": migration.name, "sha256": migration.sha256}
        record = "\n".join(_with_values(sql[name].decode(), values) for name in ("record_version", "record_checksum"))
        title = f"-- {migration.version}_{migration.name}"
        body = [sql["books"].decode(), migration.up, record]
        if migration.transactional:
            body = ["BEGIN;", sql["wait_limit"].decode(), sql["runner_lock"].decode(), *body, "COMMIT;"]
        parts.append("\n".join([title, *body]))
    return "\n\n".join(parts)


def _apply_next(connection: psycopg.Connection[Any], release: Sequence[Migration]) -> Migration | None:
    """Take the lock, look what is there now, and apply the first pending migration; None when none is."""
    sql = queries("migrate")
    with connection.transaction():
        connection.execute(sql["wait_limit"])
        connection.execute(sql["runner_lock"])
        state = schema_state(connection, release)
        if state.changed or state.unknown:
            fault = schema_fault(state)
            assert fault is not None, "changed and unknown migrations are faults"
            raise fault
        if state.pending or state.unrecorded:
            connection.execute(sql["books"])
        for migration in state.unrecorded:
            _record(connection, migration, query="record_checksum")
        if not state.pending:
            return None
        migration = state.pending[0]
        _run(connection, migration)
        hit("migrate.before_record")
        for query in ("record_version", "record_checksum"):
            _record(connection, migration, query=query)
        return migration


def _run(connection: psycopg.Connection[Any], migration: Migration) -> None:
    """Run one file; what cannot be in a transaction runs on a second connection while this one keeps the lock."""
    try:
        if migration.transactional:
            connection.execute(migration.up.encode())
            return
        with psycopg.connect(connection.info.dsn, password=connection.info.password, autocommit=True) as second:
            second.execute(migration.up.encode())
    except psycopg.Error as error:
        if connection.broken:
            raise
        raise _failed(migration, error) from error


def _record(connection: psycopg.Connection[Any], migration: Migration, *, query: str) -> None:
    values = {"version": migration.version, "name": migration.name, "sha256": migration.sha256}
    connection.execute(queries("migrate")[query], values)


def _failed(migration: Migration, error: psycopg.Error) -> Failure:
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return Unavailable(
            "database_unavailable",
            f"{migration.version}_{migration.name} waited too long for a lock that another session holds",
            "Run `onceflow migrate` again when less is going on; nothing was changed.",
        )
    said = redacted(str(error)).splitlines()[0]
    return Misconfigured(
        "migration_failed",
        f"{migration.version}_{migration.name} failed: {said}",
        "Nothing of this migration was kept. Mend what the message names (often a missing right), then run it again.",
    )


def _locked(error: psycopg.Error) -> Unavailable:
    del error
    return Unavailable(
        "database_unavailable",
        "another migrations runner holds the lock for too long",
        "Look for it in pg_stat_activity (application_name onceflow-migrate), then run `onceflow migrate` again.",
    )


def _with_values(text: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"%({name})s", "'" + value.replace("'", "''") + "'")
    return text
