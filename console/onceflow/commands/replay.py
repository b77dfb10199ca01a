"""``onceflow replay``: reads a stretch of an event topic again, by decision of a person.

Rule: it is a dry run unless ``--execute`` is given, and says before what it would do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onceflow.command_options import Config, Json, KafkaConfig, Live, Set, setting_sources, settings_for_service
from onceflow.results import say

if TYPE_CHECKING:
    from datetime import datetime

    from onceflow.settings import SettingSources
    from onceflow_processor.replay.execution import Executed
    from onceflow_processor.replay.looking import Looked
    from onceflow_processor.replay.request import Request
    from onceflow_processor.replay.rerun_report import RerunReport
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

RATE_DEFAULT = 1_000.0
"""Events in a second: below what a processor does, so that live traffic keeps its share."""

Topic = Annotated[str | None, typer.Option("--topic", help="The event topic.")]
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
Rerun = Annotated[bool, typer.Option("--rerun", help="Run again what was processed: a mended handler.")]
AllowOperations = Annotated[
    bool, typer.Option("--allow-operations", help="A rerun may ask for operations that there are not yet.")
]
Execute = Annotated[bool, typer.Option("--execute/--dry-run", help="Do it; without this flag it is only shown.")]
Reason = Annotated[str, typer.Option("--reason", help="Why, for the audit.")]
Rate = Annotated[float, typer.Option("--rate", help="At most so many events run in a second.")]
Resume = Annotated[int | None, typer.Option("--resume", metavar="ID", help="Go on with a replay that was begun.")]
HandlersName = Annotated[str | None, typer.Option("--handlers", metavar="MODULE:ATTRIBUTE", help="Your handlers.")]


def replay(
    *,
    topic: Topic = None,
    partition: Partitions = None,
    from_offset: FromOffset = None,
    to_offset: ToOffset = None,
    from_time: FromTime = None,
    to_time: ToTime = None,
    key: Keys = None,
    type: Types = None,
    event_id: EventIds = None,
    include: Include = None,
    rerun: Rerun = False,
    allow_operations: AllowOperations = False,
    execute: Execute = False,
    reason: Reason = "",
    rate: Rate = RATE_DEFAULT,
    resume: Resume = None,
    handlers: HandlersName = None,
    config: Config = None,
    kafka_config: KafkaConfig = None,
    assignments: Set = None,
    live: Live = False,
    as_json: Json = False,
) -> None:
    """Read a stretch of an event topic again: what of it was processed, and what would run."""
    from onceflow_processor.replay.request import Request

    unread: list[str] = []
    request = Request(
        topic=topic or "",
        partitions=tuple(partition or ()),
        from_offset=from_offset,
        to_offset=to_offset,
        from_time=_time(from_time, "--from-time", unread=unread),
        to_time=_time(to_time, "--to-time", unread=unread),
        keys=tuple(key or ()),
        types=tuple(type or ()),
        event_ids=tuple(event_id or ()),
        ignored=_included(include or [], unread),
        rerun=rerun,
        allow_operations=allow_operations,
        execute=execute,
        reason=reason,
        rate=rate,
        unread=tuple(unread),
    )
    _check_resume(request, resume)
    sources = setting_sources(
        config=config,
        kafka_config=kafka_config,
        assignments=assignments,
        live=live,
        flags={"processor.handlers": ("--handlers", handlers)},
    )
    options, group = _options(sources)
    _run(options, request, resume=resume, group=group, as_json=as_json)


def _check_resume(request: Request, resume: int | None) -> None:
    """A run goes on with what it was begun with, so nothing else can be asked for."""
    from onceflow_processor.replay.request import Request

    if resume is None and not request.topic:
        raise typer.BadParameter("--topic is missing")
    if resume is not None and replace(request, rate=None, execute=False) != Request(topic=""):
        raise typer.BadParameter("--resume goes on with what was asked for: besides it only --rate can be given")
    if resume is not None and not (request.rate is not None and 0 < request.rate < float("inf")):
        raise typer.BadParameter(f"--rate {request.rate} is not above 0")


def _run(options: ProcessorOptions, request: Request, *, resume: int | None, group: str, as_json: bool) -> None:
    import psycopg

    from onceflow.database import unavailable
    from onceflow.operator_name import operator_name
    from onceflow.replay_report import progress_shown
    from onceflow_processor.replay.execution import Order, execute
    from onceflow_processor.replay.looking import look

    try:
        with progress_shown() as told:
            if not request.execute and not request.rerun and resume is None:
                looked = look(options, request, group=group, told=told)
                _write_looked(request, looked, as_json=as_json)
                return
            begun = None if resume is not None else request
            rate = RATE_DEFAULT if request.rate is None else request.rate
            executed = execute(
                options,
                Order(request=begun, run_id=resume, rate=rate, who=operator_name(), group=group, told=told),
            )
    except psycopg.Error as error:
        raise unavailable(error) from error
    _write_executed(executed, resumed=resume is not None, as_json=as_json)


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


def _included(include: list[str], unread: list[str]) -> bool:
    unread.extend(f"--include takes ignored, not {one!r}" for one in include if one != "ignored")
    return "ignored" in include


def _time(text: str | None, flag: str, *, unread: list[str]) -> datetime | None:
    from onceflow.attestation_settings import zoned_time

    if text is None:
        return None
    try:
        return zoned_time(text)
    except ValueError:
        unread.append(f"{flag} takes {_TIME}")
        return None


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
    _write_tally(looked.tally, executed=False, rerun=request.rerun)
    _write_left_out(looked.left_out)
    print("dry run: nothing was changed; add --execute")


def _write_executed(executed: Executed, *, resumed: bool, as_json: bool) -> None:
    from onceflow.exit_codes import CHECK_FAILED, INTERRUPTED
    from onceflow.results import write_object
    from onceflow_schemas.failure import Refused

    run, report = executed.run, executed.report
    resume = "Mend it and look again." if run is None else f"Mend it, then `onceflow replay --resume {run.id}` goes on."
    if executed.held is not None:
        raise Refused("replay_held", executed.held, resume)
    if as_json:
        write_object(
            {
                "run": None if run is None else run.id,
                **executed.tally.as_json(),
                "left_out_handlers": executed.left_out,
                **({} if report is None else {"found": report.lines, "found_more": report.left}),
                "executed": run is not None,
                "finished": not executed.stopped,
            }
        )
    else:
        _write_tally(executed.tally, executed=run is not None, rerun=report is not None)
        for name, count in sorted(executed.tally.done.items()):
            print(f"{name}: {count:,}")
        _write_report(report)
        _write_left_out(executed.left_out)
        if run is None:
            print("dry run: nothing was changed; add --execute")
        else:
            print(f"replay {run.id} was stopped" if executed.stopped else f"replay {run.id} is done")
    if resumed and report is not None:
        say("of what was found before the run was taken up again only the counts were kept, no lines")
    if executed.stopped:
        say("stopped" if run is None else f"go on with: onceflow replay --resume {run.id}")
        raise typer.Exit(INTERRUPTED)
    if run is not None and any(executed.tally.done.get(name) for name in ("failed", "held")):
        raise typer.Exit(CHECK_FAILED)


def _write_report(report: RerunReport | None) -> None:
    from onceflow.results import write_table

    if report is None or not report.lines:
        return
    columns = (
        "found",
        "event",
        "outcome, operation or code",
        "type, effect or handler",
        "key, subject or error",
        "revision",
    )
    rows = []
    for line in report.lines:
        which = line.get("outcome_id") or line.get("operation_id") or line.get("code", "")
        what = line.get("type") or line.get("effect") or line.get("handler") or ""
        of = line.get("key") or line.get("subject") or line.get("detail", "")
        rows.append((line["found"], line["event"], which, what, of, str(line.get("revision") or "")))
    write_table(columns, rows)
    if report.left:
        print(f"and {report.left:,} more")


def _write_left_out(names: Sequence[str]) -> None:
    for name in names:
        print(f'the handler {name} is declared replay="never" and stays out')


def _write_tally(tally: Tally, *, executed: bool, rerun: bool) -> None:
    """Write the table and what its columns mean."""
    from onceflow.replay_report import tally_rows
    from onceflow.results import write_table
    from onceflow_processor.replay.fates import meanings

    print(
        f"{tally.records:,} records read"
        + (f", {tally.passed_over:,} of them not asked for" if tally.passed_over else "")
    )
    if not tally.fates:
        return
    write_table(*tally_rows(tally))
    for fate, meaning in meanings(executed=executed, rerun=rerun).items():
        if tally.of(fate):
            print(f"{fate.value:12}{tally.of(fate):>10,}  {meaning}")
    for code, count in sorted(tally.codes.items()):
        print(f"  {code}: {count:,}")
