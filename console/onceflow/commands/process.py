"""``onceflow process``: the processor.

Rule: a fault of the user's handlers is found before the first record is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onceflow.command_options import Config, Json, KafkaConfig, Live, Set, setting_sources, settings_for_service

NEEDS = (
    "deployment.id",
    "stripe.account",
    "attestation.keys",
    "processor.handlers",
    "kafka.bootstrap.servers",
    "database.url",
)


def process(
    *,
    handlers: Annotated[
        str | None, typer.Option("--handlers", metavar="MODULE:ATTRIBUTE", help="Your handlers.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only check the handlers, then exit.")] = False,
    config: Config = None,
    kafka_config: KafkaConfig = None,
    assignments: Set = None,
    live: Live = False,
    as_json: Json = False,
) -> None:
    """Run your handlers on the events, one PostgreSQL transaction per batch."""
    sources = setting_sources(
        config=config,
        kafka_config=kafka_config,
        assignments=assignments,
        live=live,
        flags={"processor.handlers": ("--handlers", handlers)},
    )
    loaded = settings_for_service(sources, needs=("processor.handlers",) if check else NEEDS)

    from onceflow.handlers_loading import load_handlers
    from onceflow.results import write_object, write_ready

    name = loaded.settings.processor.handlers
    assert name is not None, "it is among NEEDS"
    found = load_handlers(name, folder=Path.cwd())
    if check:
        found.check()
        if as_json:
            write_object({"handlers": name, "usable": True, "types": found.types()})
        else:
            print(f"{name}: the handlers can be used")
        return

    from onceflow.service_options import processor_options
    from onceflow_processor.service import run

    announce = write_ready if as_json else None
    raise typer.Exit(run(processor_options(loaded.settings, handlers=found, announce=announce)))
