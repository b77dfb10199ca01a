"""``onceflow replay``: reads a stretch of an event topic again, by decision of a person.

Rule: it is a dry run unless ``--execute`` is given, and says before what it would do.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onceflow.command_options import Config, Json, KafkaConfig, Live, Set, setting_sources, settings_for_service

if TYPE_CHECKING:
    from datetime import datetime

    from onceflow.settings import SettingSources
    from onceflow_processor.replay.looking import Looked
    from onceflow_processor.replay.request import Request
    from onceflow_processor.replay.tally import Tally
    from onceflow_processor.service import ProcessorOptions

NEEDS = (
    "deployment.id",
    "stripe.account",
    "attestation.keys",
    "processor.handlers",
    "kafka.bootstrap.servers",
    "database.url",
)

_TIME = "an RFC 3339 time with its zone, such as 2026-01-01T00:00:00Z"

Topic = Annotated[str, typer.Option("--topic", help="The event topic.")]
Partitions = Annotated[
    list[int] | None, typer.Option("--partition", help="A partition; repeatable, all when left out.")
]
FromOffset = Annotated[int | None, typer.Option("--from-offset", help="The first offset.")]
ToOffset = Annotated[int | None, typer.Option("--to-offset", help="The offset to end before.")]
FromTime = Annotated[str | None, typer.Option("--from-time", metavar="TIME", help="The first record at or after it.")]
ToTime = Annotated[
    str | None, typer.Option("--to-time", metavar="TIME", help="End before the first record at or after it.")
]
Keys = Annotated[list[str] | None, typer.Option("--key", help="Record key, with or without its account; repeatable.")]
Types = Annotated[list[str] | None, typer.Option("--type", help="Event type, or a prefix and .*; repeatable.")]
EventIds = Annotated[list[str] | None, typer.Option("--event-id", help="Event id; repeatable.")]
Include = Annotated[
    list[str] | None, typer.Option("--include", metavar="ignored", help="Take up what was ignored, too.")
]
HandlersName = Annotated[str | None, typer.Option("--handlers", metavar="MODULE:ATTRIBUTE", help="Your handlers.")]


def replay(
    *,
    topic: Topic,
    partition: Partitions = None,
    from_offset: FromOffset = None,
    to_offset: ToOffset = None,
    from_time: FromTime = None,
    to_time: ToTime = None,
    key: Keys = None,
    type: Types = None,
    event_id: EventIds = None,
    include: Include = None,
    handlers: HandlersName = None,
    config: Config = None,
    kafka_config: KafkaConfig = None,
    assignments: Set = None,
    live: Live = False,
    as_json: Json = False,
) -> None:
    """Read a stretch of an event topic again: what of it was processed, and what would run."""
    from onceflow_processor.replay.request import Request

    request = Request(
        topic=topic,
        partitions=tuple(partition or ()),
        from_offset=from_offset,
        to_offset=to_offset,
        from_time=_time(from_time, "--from-time"),
        to_time=_time(to_time, "--to-time"),
        keys=tuple(key or ()),
        types=tuple(type or ()),
        event_ids=tuple(event_id or ()),
        ignored=_included(include or []),
    )
    sources = setting_sources(
        config=config,
        kafka_config=kafka_config,
        assignments=assignments,
        live=live,
        flags={"processor.handlers": ("--handlers", handlers)},
    )
    options, group = _options(sources)

    import psycopg

    from onceflow.database import unavailable
    from onceflow.replay_report import progress_shown
    from onceflow_processor.replay.looking import look

    try:
        with progress_shown() as told:
            looked = look(options, request, group=group, told=told)
    except psycopg.Error as error:
        raise unavailable(error) from error
    _write_looked(request, looked, as_json=as_json)


def _options(sources: SettingSources) -> tuple[ProcessorOptions, str]:
    """Return what the processor would be told, and the name for looks at topics."""
    loaded = settings_for_service(sources, needs=NEEDS)

    from onceflow.handlers_loading import load_handlers
    from onceflow.kafka_names import replay_group
    from onceflow.service_options import processor_options

    name, deployment = loaded.settings.processor.handlers, loaded.settings.deployment.id
    assert name is not None, "it is among NEEDS"
    assert deployment is not None, "it is among NEEDS"
    handlers = load_handlers(name, folder=Path.cwd())
    return processor_options(loaded.settings, handlers=handlers), replay_group(deployment)


def _included(include: list[str]) -> bool:
    unknown = [one for one in include if one != "ignored"]
    if unknown:
        raise typer.BadParameter(f"--include takes ignored, not {unknown[0]!r}")
    return bool(include)


def _time(text: str | None, flag: str) -> datetime | None:
    from onceflow.attestation_settings import zoned_time

    if text is None:
        return None
    try:
        return zoned_time(text)
    except ValueError:
        raise typer.BadParameter(f"{flag} takes {_TIME}") from None


def _write_looked(request: Request, looked: Looked, *, as_json: bool) -> None:
    from onceflow.replay_report import stretch_objects
    from onceflow.results import write_object

    if as_json:
        result: dict[str, Any] = {
            "filters": request.filters(),
            "stretches": stretch_objects(looked.stretches),
            **looked.tally.as_json(),
            "left_out_handlers": looked.left_out,
            "executed": False,
        }
        write_object(result)
        return
    _write_tally(looked.tally)
    for name in looked.left_out:
        print(f'the handler {name} is declared replay="never" and stays out')
    print("dry run: nothing was changed; add --execute")


def _write_tally(tally: Tally) -> None:
    """Write the table and what its columns mean."""
    from onceflow.replay_report import tally_rows
    from onceflow.results import write_table
    from onceflow_processor.replay.fates import MEANINGS

    print(f"{tally.records:,} records read, {tally.passed_over:,} of them not asked for")
    if not tally.fates:
        return
    write_table(*tally_rows(tally))
    for fate, meaning in MEANINGS.items():
        if tally.of(fate):
            print(f"{fate.value:12}{tally.of(fate):>10,}  {meaning}")
    for code, count in sorted(tally.codes.items()):
        print(f"  {code}: {count:,}")
