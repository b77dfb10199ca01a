"""Whether a database has exactly the schema of this release; every service asks before it touches anything.

Rule: a service never runs on another schema than its own, older or newer, and never mends it: that is the task of
``onceflow migrate`` alone, which uses the same comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from onceflow_schemas.failure import Misconfigured
from onceflow_schemas.sql import Migration, migrations, queries

NAMES_SHOWN_MAX = 3


@dataclass(frozen=True, slots=True)
class SchemaState:
    """How a database compares with a release.

    Args:
        pending: migrations of the release that the database does not have, in their order.
        unknown: versions of the database that the release does not have.
        changed: applied migrations whose file was another one then.
        unrecorded: applied migrations without a checksum of ours (another tool applied them).
        empty: nothing was ever applied.
    """

    pending: tuple[Migration, ...]
    unknown: tuple[str, ...]
    changed: tuple[Migration, ...]
    unrecorded: tuple[Migration, ...]
    empty: bool


def compare_schema(release: Sequence[Migration], applied: Mapping[str, str | None]) -> SchemaState:
    """Compare the migrations of a release with the versions (and checksums, where known) of a database."""
    known = {migration.version for migration in release}
    had = [migration for migration in release if migration.version in applied]
    return SchemaState(
        pending=tuple(migration for migration in release if migration.version not in applied),
        unknown=tuple(sorted(set(applied) - known)),
        changed=tuple(one for one in had if applied[one.version] not in (None, one.sha256)),
        unrecorded=tuple(one for one in had if applied[one.version] is None),
        empty=not applied,
    )


def schema_fault(state: SchemaState) -> Misconfigured | None:
    """Return why a service must not start on this schema; the fault that needs another file or release comes first."""
    if state.changed:
        return Misconfigured("schema_changed", f"applied migrations differ from this release: {_names(state.changed)}")
    if state.unknown:
        return Misconfigured(
            "schema_ahead", f"the database has migrations that this release does not: {_list(state.unknown)}"
        )
    if state.empty and state.pending:
        return Misconfigured("schema_missing", "the database has no onceflow schema yet")
    if state.pending:
        return Misconfigured("schema_behind", f"migrations are not applied yet: {_names(state.pending)}")
    return None


def read_applied(connection: psycopg.Connection[Any]) -> dict[str, str | None]:
    """Return the applied versions with their checksums, as far as known; empty for a database that is not ours yet."""
    sql = queries("migrate")
    with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(sql["books_exist"]).fetchone()
        assert row is not None, "the query always has one row"
        versions, checksums = row
        if not versions:
            return {}
        rows = cursor.execute(sql["applied_with_checksums" if checksums else "applied"]).fetchall()
    return {str(version): sha256 for version, sha256 in rows}


def check_encoding(connection: psycopg.Connection[Any]) -> None:
    """Refuse a database of another encoding before anything is read: its texts would come as bytes.

    Raises:
        Misconfigured: ``database_unsafe``.
    """
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise Misconfigured("database_unsafe", f"the database's encoding is {encoding}: create it with ENCODING 'UTF8'")


def check_schema(connection: psycopg.Connection[Any]) -> None:
    """Refuse a database whose schema is not that of this release.

    Args:
        connection: any open one; it is left as it was.

    Raises:
        Misconfigured: ``schema_missing``, ``schema_behind``, ``schema_ahead``, ``schema_changed``, or
            ``database_unsafe`` for another encoding.
        psycopg.Error: the database did not answer.
    """
    check_encoding(connection)
    fault = schema_fault(compare_schema(migrations(), read_applied(connection)))
    if fault is not None:
        raise fault


def _names(found: Sequence[Migration]) -> str:
    return _list([f"{one.version}_{one.name}" for one in found])


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_SHOWN_MAX])
    more = len(names) - NAMES_SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown
