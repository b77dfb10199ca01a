"""The doctor's look at the database.

Rule: one short connection, reads only, every wait bounded; what was said by libpq or the server is shown without
secrets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.rows import dict_row

from onceflow.database import connect, unavailable
from onceflow.doctor.checked import Checked, Part, cross, crosses, tick
from onceflow.doctor.judgements import Right, judge_clock, judge_deployment, judge_retention, judge_rights, rights_of
from onceflow.doctor.reads import judge_reads
from onceflow.exit_codes import DEPENDENCY
from onceflow.settings_model import Settings
from onceflow_processor.retention.store import read_book
from onceflow_processor.schema_check import compare_schema, read_applied, schema_fault
from onceflow_processor.start_check import read_only_fault, safety_faults
from onceflow_schemas.failure import Failure
from onceflow_schemas.sql import migrations, queries

STATEMENT_SECONDS_MAX = 10
_SQL = queries("doctor")


class DatabaseLook:
    """What was found; ``lanes`` is None unless the tables could be read, and so may positions be only then."""

    def __init__(self) -> None:
        self.lines: list[Checked] = []
        self.lanes: Sequence[Mapping[str, Any]] | None = None
        self.shows_positions = False

    def run(self, settings: Settings, *, parts: Sequence[Part]) -> None:
        """Look; never raises for what it finds."""
        try:
            with connect(settings.database.url.get_secret_value(), role="doctor") as connection:
                connection.autocommit = True
                self.lines.extend(self._look(connection, settings, parts=parts))
        except Failure as failure:
            self.lines.extend(crosses("database", failure, status=DEPENDENCY))
        except psycopg.Error as error:
            self.lines.extend(crosses("database", unavailable(error), status=DEPENDENCY))

    def _look(
        self, connection: psycopg.Connection[Any], settings: Settings, *, parts: Sequence[Part]
    ) -> Iterator[Checked]:
        with connection.cursor(row_factory=dict_row) as cursor:
            # The encoding comes first: in another one the server's texts would come as bytes.
            encoding = connection.info.parameter_status("server_encoding")
            if encoding != "UTF8":
                yield cross(
                    "encoding", str(encoding), fix="Create the database with ENCODING 'UTF8'.", status=DEPENDENCY
                )
                return
            yield from self._server(cursor)
            fault = schema_fault(compare_schema(migrations(), read_applied(connection)))
            if fault is not None:
                yield from crosses("schema", fault)
                return
            yield tick("schema", f"that of this release: {len(migrations())} migrations")
            yield from self._tables(cursor, settings, parts=parts)

    @staticmethod
    def _server(cursor: psycopg.Cursor[dict[str, Any]]) -> Iterator[Checked]:
        safety = _one(cursor.execute(queries("start")["safety"]).fetchone())
        version = safety["version"]
        read_only = read_only_fault(safety)
        faults = [*safety_faults(safety), *([] if read_only is None else [read_only])]
        for fault in faults:
            what, _, fix = fault.rpartition(": ")
            yield cross("database", what, fix=fix[:1].upper() + fix[1:] + ".", status=DEPENDENCY)
        if not faults:
            found = f"PostgreSQL {version // 10_000}.{version % 10_000}, UTF8, a writable primary"
            yield tick("database", f"{found}, fsync=on, synchronous_commit={safety['synchronous_commit']}")
        asked = datetime.now(UTC)
        clock = _one(cursor.execute(_SQL["clock"]).fetchone())
        yield judge_clock(asked=asked, theirs=clock["now"], answered=datetime.now(UTC))

    def _tables(
        self, cursor: psycopg.Cursor[dict[str, Any]], settings: Settings, *, parts: Sequence[Part]
    ) -> Iterator[Checked]:
        role = str(_one(cursor.execute(_SQL["clock"]).fetchone())["role"])
        wanted = rights_of(parts)
        asked = {
            "tables": [one.table for one in wanted],
            "privileges": [one.privilege for one in wanted],
            "columns": [one.column for one in wanted],
        }
        rows = cursor.execute(_SQL["missing_rights"], asked).fetchall()
        missing = [Right(row["name"], row["privilege"], row["column_name"]) for row in rows]
        yield judge_rights(missing, role=role, parts=[part for part in parts if part != "bridge"])
        lacks = {one.table for one in missing if one.privilege == "SELECT"}
        if "process" in parts and "deployment" not in lacks:
            yield judge_deployment(cursor.execute(_SQL["deployment"]).fetchone(), settings)
        if {"process", "operate"} & set(parts) and "object_read" not in lacks:
            reads = _one(cursor.execute(_SQL["reads"]).fetchone())
            yield judge_reads(reads, read_objects=settings.processor.read_objects)
        if "relay" in parts and "retention" not in lacks:
            yield judge_retention(read_book(cursor.connection))
        self.shows_positions = not lacks & {"progress", "lane", "suspect"}
        if "lane" not in lacks:
            self.lanes = cursor.execute(_SQL["lanes"]).fetchall()


def _one(row: dict[str, Any] | None) -> dict[str, Any]:
    assert row is not None, "the query always has one row"
    return row
