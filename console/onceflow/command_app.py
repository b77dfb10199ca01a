"""Which commands there are.

Rule: commands import what they need when they run, so that help is quick.
"""

from __future__ import annotations

import typer

from onceflow.commands import (
    bridge,
    config,
    demo,
    doctor,
    failures,
    findings,
    lanes,
    migrate,
    operate,
    operations,
    outcomes,
    process,
    progress,
    reconcile,
    relay,
    replay,
    simulate,
    topics,
    up,
)

app = typer.Typer(
    name="onceflow",
    help="Stripe events turned into effects that happen exactly once.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(up.up)
app.command()(demo.demo)
app.command()(bridge.bridge)
app.command()(process.process)
app.command()(relay.relay)
app.command()(operate.operate)
app.command()(reconcile.reconcile)
app.command()(replay.replay)
app.command()(migrate.migrate)
app.command()(doctor.doctor)
app.add_typer(topics.app, name="topics")
app.add_typer(progress.app, name="progress")
app.add_typer(lanes.app, name="lanes")
app.add_typer(outcomes.app, name="outcomes")
app.add_typer(operations.app, name="operations")
app.add_typer(failures.parked, name="parked")
app.add_typer(failures.quarantine, name="quarantine")
app.add_typer(findings.app, name="findings")
app.add_typer(simulate.app, name="simulate")
app.add_typer(config.app, name="config")


@app.callback(invoke_without_command=True)
def version(
    context: typer.Context,
    show: bool = typer.Option(False, "--version", help="Print the version and exit."),  # noqa: FBT001, FBT003
) -> None:
    """Stripe events turned into effects that happen exactly once."""
    if show:
        from importlib.metadata import version as installed_version  # noqa: PLC0415

        typer.echo(f"onceflow {installed_version('onceflow')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)
