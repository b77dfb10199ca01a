"""The dry run of a replay: reads the range, and tells what would become of each record.

Rule: it writes nothing, to PostgreSQL or to Kafka; its consumer is assigned by hand and joins no group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from psycopg import Connection
from psycopg.rows import dict_row

from onceflow_processor.admission import Item, Rules, admit
from onceflow_processor.database import connect
from onceflow_processor.kafka_client import StartClient
from onceflow_processor.log_reader import LogReader
from onceflow_processor.records import Record
from onceflow_processor.replay.planning import plan
from onceflow_processor.replay.request import Request, Stretch
from onceflow_processor.replay.survey import Survey, left_out
from onceflow_processor.replay.tally import Tally
from onceflow_processor.retention.store import read_known_from
from onceflow_processor.schema_check import check_schema
from onceflow_processor.service import ProcessorOptions
from onceflow_schemas.failure import Misconfigured
from onceflow_schemas.sql import queries

PLAN_SECONDS_MAX: Final = 60.0
"""How long the broker may take to tell what the partitions hold."""

_SQL = queries("start")


class Passed(NamedTuple):
    """How far a replay is: offsets that are behind, offsets in all, and what was counted."""

    offsets: int
    total: int
    tally: Tally


Told = Callable[[Passed], None]


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look found."""

    stretches: Sequence[Stretch]
    tally: Tally
    left_out: tuple[str, ...]


def look(options: ProcessorOptions, request: Request, *, group: str, told: Told) -> Looked:
    """Read the range and count what would become of it.

    Args:
        options: as the processor has them.
        request: what is asked for.
        group: a name for the client; it is not joined.
        told: is told how far it is.

    Raises:
        Refused: with every fault of the request; nothing was read.
        Failure: Kafka or PostgreSQL cannot be used.
        psycopg.Error: the database did not answer.
    """
    options.handlers.check()
    tally = Tally()
    with opened(options, request, group=group) as (reader, cluster, topic_id, stretches):
        total, passed = sum(one.end - one.first for one in stretches), 0
        with connect(options.database_url, application_name="onceflow-replay", prepared=options.prepared) as connection:
            survey = Survey(
                connection,
                reader,
                request=request,
                admit=admission(_rules(connection, options)),
                handlers=options.handlers,
                cluster_id=cluster,
                topic_id=topic_id,
            )
            for stretch in stretches:
                for page in survey.pages(stretch):
                    page.count(tally)
                    told(Passed(passed + page.next_offset - stretch.first, total, tally))
                passed += stretch.end - stretch.first
    told(Passed(total, total, tally))
    return Looked(stretches, tally, left_out(options.handlers, tally))


@contextmanager
def opened(
    options: ProcessorOptions, request: Request, *, group: str
) -> Iterator[tuple[LogReader, str, str, list[Stretch]]]:
    """Open a reader and plan: the reader, the ids of cluster and topic, and what to read; raises as ``plan``."""
    with LogReader(options.kafka, group=group, deadline_seconds=PLAN_SECONDS_MAX) as reader:
        cluster, topic_id, count = "", "", None
        if request.topic in options.topics:
            cluster, topics = StartClient(options.kafka).ask([request.topic])
            topic_id, count = topics[request.topic].topic_id, topics[request.topic].partitions
        yield reader, cluster, topic_id, plan(reader, request, topics=options.topics, count=count)


def admission(rules: Rules) -> Callable[[Record, datetime], Item]:
    """Return what tells what a record is, by today's rules."""
    return lambda record, now: admit(record, rules=rules, now=now)


def _rules(connection: Connection[Any], options: ProcessorOptions) -> Rules:
    """Check that the database is this deployment's, without freezing one."""
    check_schema(connection)
    connection.rollback()
    with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(_SQL["deployment"]).fetchone()
        known_from = read_known_from(connection)
    if row is not None and (row["id"], row["mode"]) != (options.deployment, options.mode):
        own = f"{options.deployment} ({options.mode})"
        message = f"the database belongs to deployment {row['id']} ({row['mode']}), not {own}"
        raise Misconfigured("database_other_deployment", message)
    accounts = frozenset(options.accounts) | frozenset(() if row is None else row["accounts"])
    return options.rules(accounts, known_from=known_from)
