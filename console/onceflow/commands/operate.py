"""``onceflow operate``: the workers of operations.

Rule: many may run; the database hands each operation to one of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onceflow.command_options import Config, Json, KafkaConfig, Live, Set, setting_sources, settings_for_service

NEEDS = ("deployment.id", "stripe.account", "processor.handlers", "kafka.bootstrap.servers", "database.url")


def operate(
    *,
    handlers: Annotated[
        str | None, typer.Option("--handlers", metavar="MODULE:ATTRIBUTE", help="Your handlers, with their effects.")
    ] = None,
    config: Config = None,
    kafka_config: KafkaConfig = None,
    assignments: Set = None,
    live: Live = False,
    as_json: Json = False,
) -> None:
    """Carry out the operations that handlers and applications have asked for."""
    sources = setting_sources(
        config=config,
        kafka_config=kafka_config,
        assignments=assignments,
        live=live,
        flags={"processor.handlers": ("--handlers", handlers)},
    )
    loaded = settings_for_service(sources, needs=NEEDS)

    from onceflow.handlers_loading import load_handlers
    from onceflow.results import write_ready
    from onceflow.service_options import operator_options
    from onceflow_processor.operations.service import run

    name = loaded.settings.processor.handlers
    assert name is not None, "it is among NEEDS"
    found = load_handlers(name, folder=Path.cwd())
    announce = write_ready if as_json else None
    raise typer.Exit(run(operator_options(loaded.settings, handlers=found, announce=announce)))
