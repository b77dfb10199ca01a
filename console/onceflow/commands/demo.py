"""``onceflow demo``: the whole road on this machine, with everything killed once, and the count.

Rule: the demo is an outsider to the product; this command only hands it what the command line says and an environment in
which no settings of another installation stand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onceflow.command_options import Json


def demo(
    *,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Repeat a run: order, bodies and deaths follow from it.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep data and logs here; a temporary folder when left out.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Send 2,000 webhooks over a real Kafka and PostgreSQL, kill every part once, and count."""
    from onceflow.demo.run import DemoOptions, run
    from onceflow.settings import environment_for_child, process_environment, user_cache_folder

    inherited = process_environment()
    cache = inherited.get("ONCEFLOW_RUNTIME_CACHE_FOLDER") or user_cache_folder()
    environment = environment_for_child(inherited, {}, overrides={"runtime.cache_folder": cache})
    folder = data.absolute() if data is not None else None
    raise typer.Exit(run(DemoOptions(environment=environment, seed=seed, folder=folder, as_json=as_json)))
