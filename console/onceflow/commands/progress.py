"""``onceflow progress``: shows the positions of the event topics' partitions, and sets one by decision of a person.

Rule: ``set`` is a dry run unless ``--execute`` is given, and says before what it would do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from onceflow.command_options import Config, Json, KafkaConfig, Set, setting_sources
from onceflow.results import say, write_object, write_table
from onceflow_schemas.topic_ids import shown_topic_id

if TYPE_CHECKING:
    from onceflow_processor.position_change import Looked, Target
    from onceflow_processor.position_report import Reported

app = typer.Typer(help="Positions of the event topics' partitions.", no_args_is_help=True, rich_markup_mode=None)

SHOW_NEEDS = ("deployment.id", "kafka.bootstrap.servers", "database.url")
SET_NEEDS = ("deployment.id", "attestation.keys", "kafka.bootstrap.servers", "database.url")
LOOK_SECONDS_MAX = 300.0
"""For reading and counting a whole range."""
COLUMNS = ("topic", "partition", "next", "log", "lag", "epoch", "owner", "state", "meaning", "next step")


@app.command()
def show(
    *, config: Config = None, kafka_config: KafkaConfig = None, assignments: Set = None, as_json: Json = False
) -> None:
    """Show how far each partition is done, and what it needs when it stands still."""
    from onceflow.database import session
    from onceflow.kafka_names import processor_group
    from onceflow.position_overview import read_positions
    from onceflow.settings import load_settings
    from onceflow_processor.schema_check import check_schema

    sources = setting_sources(config=config, kafka_config=kafka_config, assignments=assignments)
    settings = load_settings(sources, needs=SHOW_NEEDS).settings
    assert settings.deployment.id is not None, "it is among SHOW_NEEDS"
    with session(settings.database.url.get_secret_value(), role="progress") as connection:
        check_schema(connection)
        found, failure = read_positions(
            connection,
            kafka=settings.kafka.for_consumer(),
            group=processor_group(settings.deployment.id),
            topics=settings.input_topics,
        )
    _write_rows(found, as_json=as_json)
    if failure is not None:
        raise failure


@app.command("set")
def set_position(
    *,
    topic: Annotated[str, typer.Argument(help="The event topic.")],
    partition: Annotated[int, typer.Argument(help="The partition.", min=0)],
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="The next offset to read.")] = None,
    earliest: Annotated[bool, typer.Option("--earliest", help="The first record that the log still has.")] = False,
    time: Annotated[
        str | None, typer.Option("--time", metavar="TIME", help="The first record at or after an RFC 3339 time.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why, for the audit.")],
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Skip records although they have no state.")
    ] = False,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Do it; without this flag it is only shown.")
    ] = False,
    config: Config = None,
    kafka_config: KafkaConfig = None,
    assignments: Set = None,
    as_json: Json = False,
) -> None:
    """Set the next offset of a partition, and let it go on from there."""
    target = _target(offset=offset, earliest=earliest, time=time)
    if not reason.strip():
        raise typer.BadParameter("--reason needs some words: they are kept in the audit")
    from onceflow.database import session
    from onceflow.kafka_names import processor_group
    from onceflow.operator_name import operator_name
    from onceflow.settings import load_settings
    from onceflow_processor import position_change
    from onceflow_processor.kafka_client import admin_client
    from onceflow_processor.log_reader import LogReader
    from onceflow_processor.records import Partition
    from onceflow_processor.schema_check import check_schema

    sources = setting_sources(config=config, kafka_config=kafka_config, assignments=assignments)
    settings = load_settings(sources, needs=SET_NEEDS).settings
    assert settings.deployment.id is not None, "it is among SET_NEEDS"
    keys = {key.id: key for key in settings.attestation.keys}
    epoch = None
    with session(settings.database.url.get_secret_value(), role="progress") as connection:
        check_schema(connection)
        group = processor_group(settings.deployment.id)
        with LogReader(settings.kafka.for_consumer(), group=group, deadline_seconds=LOOK_SECONDS_MAX) as reader:
            looked = position_change.look(
                connection,
                admin=admin_client(settings.kafka.properties),
                reader=reader,
                partition=Partition(topic, partition),
                target=target,
                trust=position_change.Trust(settings.deployment.id, keys),
            )
        if execute:
            epoch = position_change.execute(
                connection, looked, who=operator_name(), reason=reason, accept_loss=accept_loss
            )
    _write_looked(looked, epoch=epoch, accept_loss=accept_loss, as_json=as_json)


def _target(*, offset: int | None, earliest: bool, time: str | None) -> Target:
    from onceflow.attestation_settings import zoned_time
    from onceflow_processor.position_change import Target

    if [offset is not None, earliest, time is not None].count(True) != 1:
        raise typer.BadParameter("give one of --offset, --earliest, --time")
    try:
        return Target(offset, earliest, None if time is None else zoned_time(time))
    except ValueError:
        raise typer.BadParameter("--time takes an RFC 3339 time with its zone, such as 2026-01-01T00:00:00Z") from None


def _write_rows(found: list[Reported], *, as_json: bool) -> None:
    if not as_json:
        write_table(COLUMNS, [_cells(one) for one in found])
        return
    for one in found:
        row, bounds = one.row, one.bounds
        write_object(
            {
                "topic": row.topic,
                "topic_id": shown_topic_id(row.topic_id),
                "partition": row.partition,
                "next_offset": row.next_offset,
                "log_start": None if bounds is None else bounds.low,
                "log_end": None if bounds is None else bounds.high,
                "lag": one.lag,
                "epoch": row.epoch,
                "owner": row.owner,
                "state": one.state,
                "code": one.code or None,
                "meaning": one.meaning,
                "next_step": one.next_step,
            }
        )


def _cells(one: Reported) -> tuple[str, ...]:
    row, bounds = one.row, one.bounds
    log = "?" if bounds is None else f"{bounds.low}-{bounds.high}"
    numbers = ["-" if number is None else str(number) for number in (row.next_offset, one.lag, row.epoch)]
    state = f"{one.state} {one.code}".strip()
    return (
        row.topic, str(row.partition), numbers[0], log, numbers[1], numbers[2], row.owner, state, one.meaning,
        one.next_step,
    )  # fmt: skip


def _write_looked(looked: Looked, *, epoch: int | None, accept_loss: bool, as_json: bool) -> None:
    from onceflow_processor.position_move import effect

    move, counted, ahead = looked.move, looked.counted, looked.ahead
    begins = move.kind == "begin"
    present = looked.present or {}
    result: dict[str, Any] = {
        "topic": looked.partition.topic,
        "partition": looked.partition.number,
        "topic_id": shown_topic_id(looked.topic_id),
        "log_start": move.bounds.low,
        "log_end": move.bounds.high,
        "from_offset": present.get("next_offset"),
        "to_offset": move.next_offset,
        "stopped": present.get("stopped"),
        "effect": effect(move, counted, ahead=ahead),
        "records": counted.records,
        "with_state": counted.with_state,
        "to_read": ahead.records if begins else None,
        "to_read_with_state": ahead.with_state if begins else None,
        "counted_all": counted.complete and ahead.complete,
        "lost": looked.lost,
        "former_topic_ids": [shown_topic_id(row["topic_id"]) for row in looked.former],
        "executed": epoch is not None,
        "epoch": epoch,
    }
    if as_json:
        write_object(result)
        return
    for name, value in result.items():
        if value not in (None, [], ""):
            print(f"{name.replace('_', ' '):18}{value}")
    if epoch is not None:
        print("set: the processor takes the partition over anew within seconds")
    elif looked.lost is not None and not accept_loss:
        say("--execute would be refused without --accept-loss")
        print("dry run: nothing was changed")
    else:
        print("dry run: nothing was changed; add --execute")
