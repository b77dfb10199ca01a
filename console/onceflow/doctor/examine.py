"""All looks of the doctor, one after the other, each bounded in time.

Rule: a look that fails costs its own lines and no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from onceflow.database import connect
from onceflow.doctor.broker import BrokerLook
from onceflow.doctor.checked import Checked, Part, crosses
from onceflow.doctor.database import DatabaseLook
from onceflow.doctor.judgements import judge_inputs, judge_lanes, judge_positions
from onceflow.doctor.local import handlers_line, releases, settings_lines, stripe_keys_lines, stripe_log_lines
from onceflow.doctor.mail import mail_line
from onceflow.kafka_names import processor_group
from onceflow.position_overview import read_positions
from onceflow.settings import LoadedSettings, process_environment
from onceflow_schemas.failure import Failure


def examine(loaded: LoadedSettings, *, parts: Sequence[Part], folder: Path) -> Iterator[Checked]:
    """Yield every line.

    Args:
        loaded: read leniently, so that its faults are among the lines.
        parts: what runs with these settings.
        folder: where the handlers' module is looked for first.
    """
    settings = loaded.settings
    yield from releases()
    yield from settings_lines(loaded)
    if "process" in parts:
        yield from judge_inputs(settings)
    if {"process", "operate"} & set(parts) and settings.processor.handlers is not None:
        yield from handlers_line(settings.processor.handlers, folder=folder)
    if "operate" in parts and settings.stripe.account is not None:
        yield from stripe_keys_lines(settings)
    if "operate" in parts:
        yield from stripe_log_lines(process_environment())
        yield mail_line(settings)
    broker, database = BrokerLook(), DatabaseLook()
    has_kafka = "bootstrap.servers" in settings.kafka.properties
    if has_kafka:
        broker.run(settings, parts=parts)
        yield from broker.lines
    if parts == ["bridge"] or not _has_database(loaded):
        return
    database.run(settings, parts=parts)
    yield from database.lines
    if database.lanes is not None:
        topics = broker.topics or {}
        yield from judge_lanes(database.lanes, topics.get(settings.topics.outcomes))
        reads_positions = "process" in parts or "operator" in parts
        if reads_positions and has_kafka and broker.topics is not None and database.shows_positions:
            yield from _positions(loaded)


def _has_database(loaded: LoadedSettings) -> bool:
    """Without an address libpq's own variables count; whether they are set is among the faults."""
    return not any(fault.startswith("database.url") for fault in loaded.faults)


def _positions(loaded: LoadedSettings) -> list[Checked]:
    settings = loaded.settings
    try:
        with connect(settings.database.url.get_secret_value(), role="doctor") as connection:
            found, failure = read_positions(
                connection,
                kafka=settings.kafka.for_consumer(),
                group=processor_group(settings.deployment.id or ""),
                topics=settings.input_topics,
            )
    except Failure as failed:
        return crosses("positions", failed)
    if failure is not None:
        return crosses("positions", failure)
    return list(judge_positions(found))
