"""``onceflow migrate``: brings the database schema to this release.

Rule: only this command changes the schema; ``--status`` and ``--sql`` change nothing.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from onceflow.command_options import Config, Json, Set, setting_sources
from onceflow.exit_codes import OK, SCHEMA
from onceflow.results import say, write_object, write_table


def migrate(
    *,
    status: Annotated[bool, typer.Option("--status", help="Only show which migrations are applied.")] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Only print the SQL that would run.")] = False,
    config: Config = None,
    assignments: Set = None,
    as_json: Json = False,
) -> None:
    """Bring the database schema to this release."""
    if status and sql:
        raise typer.BadParameter("--status and --sql exclude each other")

    from onceflow.database import session
    from onceflow.migrations import migrate as run
    from onceflow.migrations import pending_sql, schema_state
    from onceflow.settings import load_settings

    sources = setting_sources(config=config, kafka_config=None, assignments=assignments)
    settings = load_settings(sources, needs=("database.url",)).settings
    with session(settings.database.url.get_secret_value(), role="migrate") as connection:
        if status:
            raise typer.Exit(_write_status(schema_state(connection), as_json=as_json))
        if sql:
            _write_sql(pending_sql(schema_state(connection)), as_json=as_json)
            return
        applied = [f"{one.version}_{one.name}" for one in run(connection, progress=say)]
    if as_json:
        write_object({"applied": applied})
    else:
        print(f"{len(applied)} applied" if applied else "nothing to do: the schema is that of this release")


def _write_sql(text: str, *, as_json: bool) -> None:
    if as_json:
        write_object({"sql": text})
    else:
        print(text or "-- nothing to do: the schema is that of this release")


def _write_status(state: Any, *, as_json: bool) -> int:
    """Write one row per migration; the exit status says whether a service would start."""
    from onceflow_processor.schema_check import schema_fault
    from onceflow_schemas.sql import migrations

    pending = {one.version for one in state.pending}
    changed = {one.version for one in state.changed}
    rows = [
        (
            one.version,
            one.name,
            "changed" if one.version in changed else "pending" if one.version in pending else "applied",
        )
        for one in migrations()
    ]
    rows += [(version, "", "unknown") for version in state.unknown]
    if as_json:
        for version, name, word in rows:
            write_object({"version": version, "name": name, "state": word})
    else:
        write_table(("version", "name", "state"), rows)
    fault = schema_fault(state)
    if fault is not None:
        say(f"{fault.code}: {fault.message}. {fault.hint}")
    return OK if fault is None else SCHEMA
