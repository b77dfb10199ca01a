"""Which events of a list are known: by their marker, in quarantine, or on their way in a topic.

Rule: an event that no table knows is missed only when no record of it waits in a topic either; a topic that cannot be looked
through in time leaves the question open.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, Final

from psycopg import Connection

from onceflow_processor.inputs.decode import decode
from onceflow_processor.inputs.input_topic import InputTopic
from onceflow_processor.kafka_client import TopicFacts
from onceflow_processor.log_reader import LogReader
from onceflow_processor.records import Partition, Record
from onceflow_schemas.event_record import Untrusted
from onceflow_schemas.sql import queries

BACKLOG_RECORDS_MAX: Final = 2_000_000
"""Records that are looked through for one question."""
ID_HEADER: Final = "ce_id"

_SQL = queries("reconcile")


class BacklogTooLong(Exception):
    """More records wait than are looked through: nothing is judged now."""


def unknown_ids(connection: Connection[Any], *, account: str, mode: str, event_ids: Sequence[str]) -> list[str]:
    """Return the ids that no table knows, in their order."""
    given = {"account": account, "mode": mode, "event_ids": list(event_ids)}
    known = {row[0] for row in connection.execute(_SQL["known_events"], given).fetchall()}
    return [event_id for event_id in event_ids if event_id not in known]


class Backlog:
    """What waits in the event topics behind the processor's positions.

    Args:
        open_reader: makes a reader of the log.
        topics: all that the processor reads, as Kafka describes them.
        inputs: what they carry; one that is not among these carries the bridge's own records.
        connection: where the positions are kept.
    """

    def __init__(
        self,
        open_reader: Callable[[], LogReader],
        *,
        topics: Mapping[str, TopicFacts],
        inputs: Sequence[InputTopic] = (),
        connection: Connection[Any],
    ) -> None:
        self._open_reader = open_reader
        self._topics = topics
        self._foreign = {one.topic: one for one in inputs if one.format != "onceflow"}
        self._connection = connection

    @property
    def topic_ids(self) -> dict[str, str]:
        """The ids of the topics, by name."""
        return {name: facts.topic_id for name, facts in self._topics.items()}

    def before(self, topic: str, ends: Mapping[int, int]) -> int:
        """Return how many offsets of a topic lie before these ends, by partition, and were not passed yet."""
        rows = self._connection.execute(_SQL["positions"], {"topic_id": self._topics[topic].topic_id}).fetchall()
        return sum(max(0, ends.get(partition, 0) - passed) for partition, passed in rows)

    def among(self, wanted: Collection[str]) -> set[str]:
        """Return those of the ids of which a record waits.

        Raises:
            BacklogTooLong: nothing can be said.
            Failure: the broker did not answer, or refused.
        """
        found: set[str] = set()
        read = 0
        with self._open_reader() as reader:
            for partition, next_offset in self._positions():
                bounds = reader.bounds(partition)
                first = max(next_offset, bounds.low)
                read += max(0, bounds.high - first)
                if read > BACKLOG_RECORDS_MAX:
                    raise BacklogTooLong
                with closing(reader.records(partition, first, end=bounds.high)) as records:
                    for record in records:
                        event_id = self._event_id(record)
                        if event_id in wanted:
                            found.add(event_id)
        return found

    def _event_id(self, record: Record) -> str:
        """Return the id that a record's event has, as far as the record says; empty where it says none."""
        given = self._foreign.get(record.partition.topic)
        if given is None:
            return (dict(record.headers).get(ID_HEADER) or b"").decode("ascii", "replace")
        decoded = decode(record, given=given, now=datetime.now(UTC))
        return "" if isinstance(decoded, Untrusted) else decoded.event.identity.event_id

    def _positions(self) -> list[tuple[Partition, int]]:
        found = []
        for topic, facts in self._topics.items():
            rows = self._connection.execute(_SQL["positions"], {"topic_id": facts.topic_id}).fetchall()
            done = dict(rows)
            # What was never read waits from the log's start on.
            found += [(Partition(topic, number), done.get(number, 0)) for number in range(facts.partitions)]
        return found
