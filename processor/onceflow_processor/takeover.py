"""Taking partitions over in PostgreSQL, releasing and stopping them.

Rule: a take-over raises the epoch and reads the position in one statement.  It is also how an unanswered COMMIT is
settled: the statement waits for whatever transaction still holds the row, and then reads the truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import Connection

from onceflow_processor.handoff import Assigned
from onceflow_processor.position import Begin, Position, Stop, judge_position
from onceflow_processor.records import Partition
from onceflow_schemas.sql import queries
from onceflow_schemas.topic_ids import shown_topic_id

_SQL = queries("progress")


CAREFUL_AFTER_ENDS = 2
"""Unclean ends in a row without a commit in between, after which records are tried one by one."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A take-over: the position (None when the partition may not be begun), what to do, and whether with care.

    ``in_doubt``: the verdict is a stop that a look at the log from before the take-over may have caused; nothing is
    written, and the log is to be looked at again.
    """

    position: Position | None
    verdict: Begin | Stop
    needs_care: bool
    in_doubt: bool = False


class Takeover:
    """The progress rows of one cluster, for one owner."""

    def __init__(self, connection: Connection[Any], *, cluster_id: str, owner: str) -> None:
        self._connection = connection
        self._cluster_id = cluster_id
        self._owner = owner

    def take(self, assigned: Assigned, *, seen_offset: int | None = None) -> Taken:
        """Take a partition over and judge its position against the log.

        The log was looked at before, and whoever had the partition may have gone on since: then the position is ahead
        of that look, and the log only seems to end too early.  So a lost tail is believed at the second look only,
        when the position has not moved meanwhile.

        Args:
            assigned: the partition, and its log as it was looked at.
            seen_offset: the position as it stood before that look; None for the first one.

        Raises:
            psycopg.Error: the database did not answer.
        """
        with self._connection.transaction():
            row = self._raise_epoch(assigned)
            if row is None:
                stop = self._begin(assigned)
                if stop is not None:
                    return Taken(None, stop, needs_care=False)
                row = self._raise_epoch(assigned)
            assert row is not None, "a progress row that was just made is there"
            next_offset, fingerprint, epoch, stopped, unclean_ends, suspects = row
            position = Position(assigned.topic_id, epoch, next_offset, fingerprint)
            if stopped is not None:
                waits = Stop(stopped, "the partition was stopped before and waits for a person")
                return Taken(position, waits, needs_care=False)
            verdict = judge_position(position, assigned.bounds)
            if isinstance(verdict, Stop):
                if verdict.code == "tail_lost" and next_offset != seen_offset:
                    return Taken(position, verdict, needs_care=False, in_doubt=True)
                self._write_stop(assigned.partition, position, verdict)
        return Taken(position, verdict, needs_care=suspects or unclean_ends >= CAREFUL_AFTER_ENDS)

    def _raise_epoch(self, assigned: Assigned) -> tuple[Any, ...] | None:
        return self._connection.execute(
            _SQL["take_over"], {**self._key(assigned.partition, assigned.topic_id), "owner": self._owner}
        ).fetchone()

    def _begin(self, assigned: Assigned) -> Stop | None:
        key = {**self._key(assigned.partition, assigned.topic_id), "topic": assigned.partition.topic}
        other = self._connection.execute(_SQL["other_topic"], key).fetchone()
        if other is not None:
            return Stop(
                "topic_changed", f"the position of this partition belongs to topic id {shown_topic_id(other[1])}"
            )
        known = self._connection.execute(_SQL["topic_is_known"], key).fetchone()
        # A partition that was added to a topic we already read begins at 0, or what came before we saw it is skipped.
        start = 0 if known is not None and known[0] else assigned.start_offset
        self._connection.execute(_SQL["begin_partition"], {**key, "next_offset": start, "owner": self._owner})
        return None

    def stop(self, partition: Partition, position: Position, *, stop: Stop) -> None:
        """Write that a partition stands still; a newer epoch's row is left alone."""
        with self._connection.transaction():
            self._write_stop(partition, position, stop)

    def _write_stop(self, partition: Partition, position: Position, stop: Stop) -> None:
        key = self._key(partition, position.topic_id)
        self._connection.execute(_SQL["stop"], {**key, "epoch": position.epoch, "code": stop.code})

    def wait(self, partition: Partition, position: Position, *, reason: str) -> None:
        """Write why a partition waits, for people to read."""
        with self._connection.transaction():
            key = self._key(partition, position.topic_id)
            self._connection.execute(_SQL["wait"], {**key, "epoch": position.epoch, "reason": reason})

    def release(self, positions: Mapping[Partition, Position]) -> None:
        """Mark a clean end of these partitions."""
        with self._connection.transaction():
            self._connection.execute(_SQL["release"], {"cluster_id": self._cluster_id, **_columns(positions)})

    def still_held(self, positions: Mapping[Partition, Position]) -> set[Partition]:
        """Return which positions nobody else has taken over."""
        with self._connection.transaction():
            rows = self._connection.execute(
                _SQL["still_held"],
                {
                    "cluster_id": self._cluster_id,
                    "next_offsets": [position.next_offset for position in positions.values()],
                    **_columns(positions),
                },
            ).fetchall()
        found = set(rows)
        return {
            partition for partition, position in positions.items() if (position.topic_id, partition.number) in found
        }

    def decided(self, stopped: Mapping[Partition, str]) -> set[Partition]:
        """Return which of these stopped partitions (with their topic ids) a person has let go on."""
        with self._connection.transaction():
            given = {
                "cluster_id": self._cluster_id,
                "topic_ids": list(stopped.values()),
                "partitions": [partition.number for partition in stopped],
            }
            found = set(self._connection.execute(_SQL["decided"], given).fetchall())
        return {partition for partition, topic_id in stopped.items() if (topic_id, partition.number) in found}

    def _key(self, partition: Partition, topic_id: str) -> dict[str, Any]:
        return {"cluster_id": self._cluster_id, "topic_id": topic_id, "partition": partition.number}


def _columns(positions: Mapping[Partition, Position]) -> dict[str, Any]:
    return {
        "topic_ids": [position.topic_id for position in positions.values()],
        "partitions": [partition.number for partition in positions],
        "epochs": [position.epoch for position in positions.values()],
    }
