"""``onceflow relay``: outcomes from PostgreSQL to the outcome topic.

Rule: many may run, one publishes; the others wait for its lease.
"""

from __future__ import annotations

import typer

from onceflow.command_options import Config, Json, KafkaConfig, Live, Set, setting_sources, settings_for_service

NEEDS = ("deployment.id", "kafka.bootstrap.servers", "database.url")


def relay(
    *,
    config: Config = None,
    kafka_config: KafkaConfig = None,
    assignments: Set = None,
    live: Live = False,
    as_json: Json = False,
) -> None:
    """Publish the outcomes to the outcome topic."""
    sources = setting_sources(config=config, kafka_config=kafka_config, assignments=assignments, live=live)
    loaded = settings_for_service(sources, needs=NEEDS)

    from onceflow.results import write_ready
    from onceflow.service_options import relay_options
    from onceflow_processor.relay.service import run

    raise typer.Exit(run(relay_options(loaded.settings, announce=write_ready if as_json else None)))
