"""``onceflow bridge``: the webhook endpoint.

Rule: it needs Kafka and no database, so that events are taken while PostgreSQL is away.
"""

from __future__ import annotations

from typing import Annotated

import typer

from onceflow.command_options import Config, Json, KafkaConfig, Live, Set, setting_sources, settings_for_service

NEEDS = (
    "deployment.id",
    "stripe.account",
    "stripe.webhook_secret",
    "attestation.keys",
    "kafka.bootstrap.servers",
)


def bridge(
    *,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="Port to listen on; 0 takes a free one.")] = None,
    config: Config = None,
    kafka_config: KafkaConfig = None,
    assignments: Set = None,
    live: Live = False,
    as_json: Json = False,
) -> None:
    """Take webhooks and put them into the event topic."""
    flags = {"bridge.host": ("--host", host), "bridge.port": ("--port", port)}
    sources = setting_sources(config=config, kafka_config=kafka_config, assignments=assignments, live=live, flags=flags)
    loaded = settings_for_service(sources, needs=NEEDS)

    from onceflow.results import write_ready
    from onceflow.service_options import bridge_options
    from onceflow_producer.bridge import run

    raise typer.Exit(run(bridge_options(loaded.settings, announce=write_ready if as_json else None)))
