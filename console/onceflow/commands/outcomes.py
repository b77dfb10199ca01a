"""``onceflow outcomes``: acts on single outcomes.

Rule: what changes something is a dry run unless ``--execute`` is given.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from onceflow.command_options import Config, Json, Set, setting_sources
from onceflow.results import write_object

app = typer.Typer(help="Single outcomes.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def group() -> None:
    """Single outcomes."""


@app.command()
def withhold(
    *,
    lane: Annotated[int, typer.Argument(help="The lane that is stopped.", min=0)],
    seq: Annotated[int, typer.Argument(help="The sequence that it stands in front of.", min=1)],
    code: Annotated[str, typer.Option("--code", help="Why, for consumers: small letters and underscores.")],
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Do it; without this flag it is only shown.")
    ] = False,
    config: Config = None,
    assignments: Set = None,
    as_json: Json = False,
) -> None:
    """Publish a placeholder in the place of an outcome that cannot be published, and open its lane again."""
    from onceflow.database import session
    from onceflow.settings import load_settings
    from onceflow_processor.relay.withhold import CODE_PATTERN
    from onceflow_processor.relay.withhold import withhold as run
    from onceflow_processor.schema_check import check_schema
    from onceflow_schemas.failure import Refused

    if not CODE_PATTERN.fullmatch(code):
        raise typer.BadParameter("--code takes small letters and underscores, at most 64, such as too_large")
    sources = setting_sources(config=config, kafka_config=None, assignments=assignments)
    settings = load_settings(sources, needs=("database.url",)).settings
    with session(settings.database.url.get_secret_value(), role="outcomes") as connection:
        check_schema(connection)
        found = _look(connection, lane=lane, seq=seq)
        reason = _reason_against(found, lane=lane, seq=seq)
        if execute and reason is None:
            answer = run(connection, lane, seq=seq, code=code)
            reason = None if answer == "withheld" else f"nothing was changed: {answer.replace('_', ' ')}"
    if reason is not None:
        raise Refused("withholding_refused", reason, "See the lane's state and detail in onceflow.lane.")
    _write({"lane": lane, "seq": seq, "code": code, "executed": execute, **(found or {})}, as_json=as_json)


def _look(connection: Any, *, lane: int, seq: int) -> dict[str, Any] | None:
    from psycopg.rows import dict_row

    from onceflow_schemas.sql import queries

    with connection.cursor(row_factory=dict_row) as cursor:
        found: dict[str, Any] | None = cursor.execute(
            queries("outcomes")["outcome_with_lane"], {"lane": lane, "seq": seq}
        ).fetchone()
    connection.rollback()
    return found


def _reason_against(found: dict[str, Any] | None, *, lane: int, seq: int) -> str | None:
    """Return why it would be refused, from what the rows say now; the change itself checks it again."""
    if found is None:
        return f"there is no outcome {seq} in lane {lane}"
    if found["state"] != "stopped:unpublishable":
        return f"lane {lane} is in state {found['state']}, so nothing needs to be withheld"
    if seq != found["published_seq"] + 1:
        return f"lane {lane} stands in front of {found['published_seq'] + 1}, not of {seq}"
    return None


def _write(result: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        write_object(result)
        return
    for name, value in result.items():
        print(f"{name.replace('_', ' '):14}{value}".rstrip())
    print("withheld" if result["executed"] else "dry run: nothing was changed; add --execute")
