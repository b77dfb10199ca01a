"""``onceflow lanes``: shows the lanes, and lets one that stands still go on by decision of a person.

Rule: ``resume`` is a dry run unless ``--execute`` is given; what consumers could notice must be accepted by its code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from onceflow.command_options import Config, Json, KafkaConfig, Set, setting_sources
from onceflow.exit_codes import CHECK_FAILED
from onceflow.results import write_object, write_table
from onceflow_schemas.topic_ids import shown_topic_id

if TYPE_CHECKING:
    from onceflow.settings import SettingSources
    from onceflow_processor.relay.resume_lane import LookedAt, ResumeSettings

NEEDS = ("deployment.id", "kafka.bootstrap.servers", "database.url")
COLUMNS = ("lane", "head", "published", "topic", "state", "detail", "meaning", "next step")

app = typer.Typer(help="The lanes of the outcome topic.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def show(
    *, config: Config = None, kafka_config: KafkaConfig = None, assignments: Set = None, as_json: Json = False
) -> None:
    """Show each lane, what its topic ends with, and what it needs when it stands still."""
    from onceflow.lane_overview import read_lanes

    sources = setting_sources(config=config, kafka_config=kafka_config, assignments=assignments)
    connection, settings = _open(sources)
    with connection:
        found, failure = read_lanes(connection, settings)
    if as_json:
        for one in found:
            row = one.row
            numbers = {"lane": row.lane, "head_seq": row.head, "published_seq": row.published}
            words = {"state": row.state, "detail": row.detail, "meaning": one.meaning, "next_step": one.next_step}
            write_object({**numbers, "topic_seq": one.topic_seq, "topic_id": shown_topic_id(row.topic_id), **words})
    else:
        cells = [
            (str(one.row.lane), str(one.row.head), str(one.row.published), one.topic_seq, one.row.state, one.row.detail,
             one.meaning, one.next_step)
            for one in found
        ]  # fmt: skip
        write_table(COLUMNS, cells)
    if failure is not None:
        raise failure


@app.command()
def resume(
    *,
    lane: Annotated[int, typer.Argument(help="The lane that stands still.", min=0)],
    reason: Annotated[str, typer.Option("--reason", help="Why, for the audit.")],
    accept: Annotated[
        str | None, typer.Option("--accept", metavar="CODE", help="The consequence that is accepted, by its code.")
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Do it; without this flag it is only shown.")
    ] = False,
    config: Config = None,
    kafka_config: KafkaConfig = None,
    assignments: Set = None,
    as_json: Json = False,
) -> None:
    """Let a lane go on from where topic and database agree; no relay may be active meanwhile."""
    if not reason.strip():
        raise typer.BadParameter("--reason needs some words: they are kept in the audit")
    from onceflow.operator_name import operator_name
    from onceflow_processor.relay import resume_lane, resumption

    sources = setting_sources(config=config, kafka_config=kafka_config, assignments=assignments)
    connection, settings = _open(sources)
    with connection:
        if execute:
            who = operator_name()
            looked = resume_lane.resume(connection, settings, lane=lane, who=who, reason=reason, accept=accept)
        else:
            looked = resume_lane.look(connection, settings, lane=lane)
    _write(looked, executed=execute, as_json=as_json)
    if not execute and not isinstance(looked.decision, resumption.Resume):
        raise typer.Exit(CHECK_FAILED)


@app.command()
def refill(
    *,
    lane: Annotated[int, typer.Argument(help="The lane whose topic lost records.", min=0)],
    reason: Annotated[str, typer.Option("--reason", help="Why, for the audit.")],
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Do it; without this flag it is only shown.")
    ] = False,
    config: Config = None,
    kafka_config: KafkaConfig = None,
    assignments: Set = None,
    as_json: Json = False,
) -> None:
    """Publish outcomes again that the topic lost in its middle, with their ids and sequences; no relay may be active."""
    if not reason.strip():
        raise typer.BadParameter("--reason needs some words: they are kept in the audit")
    from onceflow.operator_name import operator_name
    from onceflow.settings import load_settings
    from onceflow_processor.relay import refill as refilling

    sources = setting_sources(config=config, kafka_config=kafka_config, assignments=assignments)
    connection, settings = _open(sources)
    with connection:
        if execute:
            deployment = str(load_settings(sources, needs=NEEDS).settings.deployment.id)
            found = refilling.refill(
                connection, settings, lane=lane, deployment=deployment, who=operator_name(), reason=reason
            )
        else:
            found = refilling.look(connection, settings, lane=lane)
    scan = found.scan
    result = {
        "lane": lane,
        "published_seq": found.published,
        "records": scan.records,
        "missing": len(scan.missing),
        "first_missing": scan.missing[0] if scan.missing else None,
        "last_missing": scan.missing[-1] if scan.missing else None,
        "fault": scan.fault,
        "executed": execute,
    }
    if as_json:
        write_object(result)
    else:
        write_table(tuple(result), [tuple("" if value is None else str(value) for value in result.values())])
    if not execute and (scan.missing or scan.fault):
        raise typer.Exit(CHECK_FAILED)


def _open(sources: SettingSources) -> tuple[Any, ResumeSettings]:
    from onceflow.service_options import relay_options
    from onceflow.settings import load_settings
    from onceflow_processor.relay.lane_store import connect
    from onceflow_processor.relay.resume_lane import ResumeSettings
    from onceflow_processor.schema_check import check_schema

    options = relay_options(load_settings(sources, needs=NEEDS).settings)
    connection = connect(options.database_url, role="onceflow-lanes", prepared=False)
    try:
        check_schema(connection)
    except BaseException:
        connection.close()
        raise
    settings = ResumeSettings(
        options.kafka, options.outcome_topic, options.group, options.transactional_id, options.owner
    )
    return connection, settings


def _write(looked: LookedAt, *, executed: bool, as_json: bool) -> None:
    from onceflow.lane_overview import next_step
    from onceflow_processor.relay.resumption import Resume

    row, inspected, decision = looked.row, looked.inspected, looked.decision
    offered = decision if isinstance(decision, Resume) else None
    result = {
        "lane": row.lane,
        "state": row.state,
        "detail": row.detail,
        "head_seq": row.head,
        "published_seq": row.published,
        "cursor": None if inspected is None else str(inspected.seen.cursor),
        "last_record": None if inspected is None else str(inspected.seen.last),
        "extent": None if inspected is None else str(inspected.seen.extent),
        "verdict": None if inspected is None else str(inspected.verdict),
        "possible": offered is not None,
        "consequence": None if offered is None else offered.consequence,
        "accept": None if offered is None else offered.accept,
        "next_step": "" if executed else next_step(row.lane, decision),
        "executed": executed,
    }
    if as_json:
        write_object(result)
        return
    for name, value in result.items():
        if value not in (None, ""):
            shown = ("no", "yes")[value] if isinstance(value, bool) else value
            print(f"{name.replace('_', ' '):14}{shown}")
    print("resumed: start the relay again" if executed else "dry run: nothing was changed")
