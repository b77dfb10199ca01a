"""``onceflow reconcile``: what was missed is found and brought.

Rule: many may run, one works; the others wait for its lease.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onceflow.command_options import Config, Json, KafkaConfig, Live, Set, setting_sources, settings_for_service

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceflow_reconciler.account_cycle import Looked

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
    from onceflow.verifying import question_of
    from onceflow_reconciler.service import look_once, run

    announce = write_ready if as_json and not once else None
    options = replace(reconciler_options(loaded.settings, announce=announce), ledgers=question_of(loaded.settings))
    if not once:
        raise typer.Exit(run(options))
    found, ledgers = look_once(options, dry_run=dry_run)
    accounts = {account: told_of(looked) for account, looked in found.items()}
    if as_json:
        write_object({"accounts": accounts, "ledgers": ledgers})
    else:
        for account, told in accounts.items():
            words = (
                f"{told['listed']:,} events listed, {told['missed']:,} missed, {told['brought']:,} brought to the topic"
            )
            more = f"; {told['objects']:,} objects compared, {told['drifts']:,} disagree"
            say(f"{account}: {words}{more}" + (f"; waits: {told['waits']}" if told["waits"] else ""))
        if ledgers:
            say(f"ledgers: {ledgers:,} differences; `onceflow findings list` shows them")
    raise typer.Exit(status_of(found, ledgers))


def status_of(found: Mapping[str, Looked], ledgers: int) -> int:
    """Return 0 only when everything agrees, or was healed."""
    return 0 if ledgers == 0 and all(looked.is_clean for looked in found.values()) else 1


def told_of(looked: Looked) -> dict[str, Any]:
    """Return what is said of an account."""
    events, objects = looked.events, looked.objects
    return {
        "listed": events.listed,
        "missed": events.missed,
        "brought": events.brought,
        "objects": objects.objects,
        "drifts": objects.drifts,
        "waits": looked.waits,
    }
