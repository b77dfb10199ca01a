"""Taking partitions over in PostgreSQL, releasing and stopping them.

Rule: a take-over raises the epoch and reads the position in one statement.  It is also how an unanswered COMMIT is
settled: the statement waits for whatever transaction still holds the row, and then reads the truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg import Connection

from onceflow_processor.handoff import Assigned
from onceflow_processor.position import Begin, Position, Stop, judge_position
from onceflow_processor.records import Partition
from onceflow_schemas.sql import queries

_SQL = queries("progress")


class Takeover:
    """The progress rows of one cluster, for one owner."""

    def __init__(self, connection: Connection[Any], *, cluster_id: str, owner: str) -> None:
        self._connection = connection
        self._cluster_id = cluster_id
        self._owner = owner

    def take(self, assigned: Assigned) -> tuple[Position | None, Begin | Stop]:
        """Take a partition over and judge its position against the log.

        Returns:
            The position (None when the partition was never begun and may not be), and what to do.

        Raises:
            psycopg.Error: the database did not answer.
        """
        with self._connection.transaction():
            position, stopped = self._raise_epoch(assigned)
            if position is None:
                stop = self._begin(assigned)
                if stop is not None:
                    return None, stop
                position, stopped = self._raise_epoch(assigned)
            if position is None:
                message = "a progress row that was just made is there"
                raise AssertionError(message)
            if stopped is not None:
                return position, Stop(stopped, "the partition was stopped before and waits for a person")
            verdict = judge_position(position, assigned.bounds)
            if isinstance(verdict, Stop):
                self._write_stop(assigned.partition, position, verdict)
        return position, verdict

    def _raise_epoch(self, assigned: Assigned) -> tuple[Position | None, str | None]:
        row = self._connection.execute(
            _SQL["take_over"], {**self._key(assigned.partition, assigned.topic_id), "owner": self._owner}
        ).fetchone()
        if row is None:
            return None, None
        next_offset, fingerprint, epoch, stopped = row
        return Position(assigned.topic_id, epoch, next_offset, fingerprint), stopped

    def _begin(self, assigned: Assigned) -> Stop | None:
        key = {**self._key(assigned.partition, assigned.topic_id), "topic": assigned.partition.topic}
        other = self._connection.execute(_SQL["other_topic"], key).fetchone()
        if other is not None:
            return Stop("topic_changed", f"the position of this partition belongs to topic id {other[1]}")
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

    def _key(self, partition: Partition, topic_id: str) -> dict[str, Any]:
        return {"cluster_id": self._cluster_id, "topic_id": topic_id, "partition": partition.number}


def _columns(positions: Mapping[Partition, Position]) -> dict[str, Any]:
    return {
        "topic_ids": [position.topic_id for position in positions.values()],
        "partitions": [partition.number for partition in positions],
        "epochs": [position.epoch for position in positions.values()],
    }
