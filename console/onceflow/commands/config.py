"""``onceflow config show``: what a process started here would run with, and where each value comes from.

Rule: it shows everything, also when something is wrong, and no secret.  What a service would refuse of what is given
is a fault here too; nothing has to be given.
"""

from __future__ import annotations

import typer

from onceflow.command_options import Config, Json, KafkaConfig, Live, Set, setting_sources
from onceflow.exit_codes import OK, SETTINGS
from onceflow.results import say, write_object, write_table
from onceflow_schemas.failure import Misconfigured

USES = ("kafka.bootstrap.servers", "database.url")

app = typer.Typer(help="The settings.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def group() -> None:
    """The settings."""


@app.command()
def show(
    *,
    config: Config = None,
    kafka_config: KafkaConfig = None,
    assignments: Set = None,
    live: Live = False,
    as_json: Json = False,
) -> None:
    """Print every setting with its value and its source, secrets masked."""
    from onceflow.settings import read_settings
    from onceflow.settings_show import shown_settings

    sources = setting_sources(config=config, kafka_config=kafka_config, assignments=assignments, live=live)
    loaded = read_settings(sources, uses=USES)
    rows = shown_settings(loaded)
    if as_json:
        for row in rows:
            write_object({"name": row.name, "value": row.value, "source": row.source, "secret": row.secret})
    else:
        write_table(("setting", "value", "source"), [(row.name, row.value, row.source) for row in rows])
    for fault in loaded.faults:
        say(f"fault: {fault}")
    if loaded.faults and as_json:
        raise Misconfigured("settings_invalid", "; ".join(loaded.faults), faults=tuple(loaded.faults))
    raise typer.Exit(SETTINGS if loaded.faults else OK)
