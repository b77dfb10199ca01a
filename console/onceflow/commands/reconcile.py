"""``onceflow reconcile``: what was missed is found and brought.

Rule: many may run, one works; the others wait for its lease.
"""

from __future__ import annotations

from typing import Annotated

import typer

from onceflow.command_options import Config, Json, KafkaConfig, Live, Set, setting_sources, settings_for_service

NEEDS = (
    "deployment.id",
    "stripe.account",
    "attestation.keys",
    "kafka.bootstrap.servers",
    "database.url",
)


def reconcile(
    *,
    once: Annotated[bool, typer.Option("--once", help="Look at each account once, and end.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --once: only tell; bring nothing.")] = False,
    config: Config = None,
    kafka_config: KafkaConfig = None,
    assignments: Set = None,
    live: Live = False,
    as_json: Json = False,
) -> None:
    """Compare Stripe's events with what was processed, and bring what was missed."""
    if dry_run and not once:
        raise typer.BadParameter("--dry-run goes with --once")
    sources = setting_sources(config=config, kafka_config=kafka_config, assignments=assignments, live=live)
    loaded = settings_for_service(sources, needs=NEEDS)

    from onceflow.results import say, write_object, write_ready
    from onceflow.service_options import reconciler_options
    from onceflow_reconciler.service import look_once, run

    options = reconciler_options(loaded.settings, announce=write_ready if as_json and not once else None)
    if not once:
        raise typer.Exit(run(options))
    found = look_once(options, dry_run=dry_run)
    if as_json:
        accounts = {
            account: {"listed": told.listed, "missed": told.missed, "brought": told.brought, "waits": told.waits}
            for account, told in found.items()
        }
        write_object({"accounts": accounts})
    else:
        for account, told in found.items():
            words = f"{told.listed:,} events listed, {told.missed:,} missed, {told.brought:,} brought to the topic"
            say(f"{account}: {words}" + (f"; waits: {told.waits}" if told.waits else ""))
    raise typer.Exit(1 if any(told.waits or told.missed > told.brought for told in found.values()) else 0)
