"""The options that every command has, and the settings that follow from them.

Rule: an option means the same everywhere.  This module imports nothing heavy, so that ``onceflow --help`` is quick.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from onceflow.settings import LoadedSettings, SettingSources

Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings file; onceflow.toml of this folder when left out."),
]
KafkaConfig = Annotated[
    Path | None,
    typer.Option("--kafka-config", metavar="FILE", help="Kafka client properties, as Kafka's own tools take them."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Any setting, over file and environment; repeatable."),
]
Live = Annotated[bool, typer.Option("--live", help="Serve live events; live API keys are refused without this flag.")]
Json = Annotated[bool, typer.Option("--json", help="Write the result as JSON on standard output.")]


def setting_sources(
    *,
    config: Path | None,
    kafka_config: Path | None,
    assignments: list[str] | None,
    live: bool = False,
    flags: Mapping[str, tuple[str, Any]] | None = None,
) -> SettingSources:
    """Return what the command line says about settings.

    Args:
        config: the value of ``--config``.
        kafka_config: the value of ``--kafka-config``.
        assignments: the values of ``--set``.
        live: ``--live`` was given.
        flags: settings by flags of their own, as setting name to (flag, value); a value of None was not given.

    Raises:
        typer.BadParameter: an assignment is not in its form, or two flags say different things of one setting.
    """
    from onceflow.settings import SettingSources  # noqa: PLC0415 - see the rule of the module

    given: dict[str, tuple[str, Any]] = {}
    for assignment in assignments or []:
        name, equals, value = assignment.partition("=")
        if not equals or "." not in name:
            raise typer.BadParameter(f"--set takes SECTION.NAME=VALUE, not {name!r}")
        given[name.strip()] = (f"--set {name.strip()}", value.strip())
    own = {name: (flag, value) for name, (flag, value) in (flags or {}).items() if value is not None}
    own |= {"stripe.mode": ("--live", "live")} if live else {}
    for name in own.keys() & given.keys():
        if str(own[name][1]) != given[name][1]:
            raise typer.BadParameter(f"{own[name][0]} and {given[name][0]} contradict each other; keep one of them")
    given |= own
    return SettingSources(flags=given, config=config, kafka_config=kafka_config, live=live)


def settings_for_service(sources: SettingSources, *, needs: Collection[str]) -> LoadedSettings:
    """Return checked settings and set up the logs as they say."""
    from onceflow.logs import configure  # noqa: PLC0415
    from onceflow.settings import load_settings  # noqa: PLC0415

    loaded = load_settings(sources, needs=needs)
    configure(level=loaded.settings.logs.level, format=loaded.settings.logs.format)
    return loaded
