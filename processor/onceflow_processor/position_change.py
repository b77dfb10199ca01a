"""An operator's decision about a partition: look first, then set the position in one transaction with its audit row.

Rule: what is executed is what was looked at.  The epoch is raised with the position, so whoever reads the partition is
fenced and takes it over anew; the fingerprint is computed from the log, never carried over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from psycopg import Connection
from psycopg.rows import dict_row

from onceflow_processor.kafka_client import cluster_id, topic_id
from onceflow_processor.log_reader import LogReader, pages
from onceflow_processor.position import LogBounds
from onceflow_processor.position_move import Counted, Move, NotPossible, loss, plan_move
from onceflow_processor.records import Partition, Record
from onceflow_schemas.attestation import AttestationKey
from onceflow_schemas.event_record import EventRecord, open_event
from onceflow_schemas.failure import Refused
from onceflow_schemas.sql import queries
from onceflow_schemas.topic_ids import shown_topic_id

COUNT_RECORDS_MAX: Final = 1_000_000
"""Records of one range that are counted; more than that counts as not counted, and so as lost."""
AHEAD_RECORDS_MAX: Final = 100_000
"""Records that a partition which is begun will read: only told, so no more of them are counted."""
COUNT_PAGE_RECORDS: Final = 2_000
LOCK_TIMEOUT: Final = "10s"
STATEMENT_TIMEOUT: Final = "60s"
_SQL = queries("operating")


@dataclass(frozen=True, slots=True)
class Target:
    """Where a position shall go: exactly one of the three; ``moment`` is aware."""

    offset: int | None = None
    earliest: bool = False
    moment: datetime | None = None

    def resolve(self, reader: LogReader, *, partition: Partition, bounds: LogBounds) -> int:
        """Return the offset that is meant."""
        if self.offset is not None:
            return self.offset
        if self.moment is not None:
            return reader.offset_at(partition, moment=self.moment, bounds=bounds)
        return bounds.low


@dataclass(frozen=True, slots=True)
class Trust:
    """What tells whose identity a record carries: the deployment's id and its attestation keys."""

    deployment: str
    keys: Mapping[str, AttestationKey]


@dataclass(frozen=True, slots=True)
class Looked:
    """What setting a position would do.

    ``present`` is the stored row, None when the topic has none here; ``counted`` are the records that are read again or
    skipped, ``ahead`` those that a partition which is begun reads first.
    """

    partition: Partition
    cluster_id: str
    topic_id: str
    present: Mapping[str, Any] | None
    former: Sequence[Mapping[str, Any]]
    move: Move
    counted: Counted
    ahead: Counted
    fingerprint: str | None

    @property
    def lost(self) -> str | None:
        """What would be lost, as a sentence."""
        return loss(self.move, self.counted)

    @property
    def key(self) -> dict[str, Any]:
        """The primary key of the row."""
        return {"cluster_id": self.cluster_id, "topic_id": self.topic_id, "partition": self.partition.number}


def look(
    connection: Connection[Any],
    *,
    admin: AdminClient,
    reader: LogReader,
    partition: Partition,
    target: Target,
    trust: Trust,
) -> Looked:
    """Find out what setting a position would do; changes nothing.

    Raises:
        Refused: ``position_refused``: the target is not in the log.
        Failure: Kafka is away, refuses, or has no such partition.
        psycopg.Error: the database did not answer.
    """
    cluster, own_id = cluster_id(admin), topic_id(admin, partition.topic)
    key = {"cluster_id": cluster, "topic_id": own_id, "partition": partition.number}
    with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
        present = cursor.execute(_SQL["position"], key).fetchone()
        former = cursor.execute(_SQL["former_positions"], {**key, "topic": partition.topic}).fetchall()
    bounds = reader.bounds(partition)
    offset = target.resolve(reader, partition=partition, bounds=bounds)
    move = plan_move(None if present is None else present["next_offset"], bounds, target=offset)
    if isinstance(move, NotPossible):
        raise Refused("position_refused", move.reason, move.hint)
    counting = _Counting(connection, reader, partition=partition, trust=trust, topic_id=own_id)
    counted = counting.count(move.held, records_max=COUNT_RECORDS_MAX)
    ahead = counting.count(move.ahead, records_max=AHEAD_RECORDS_MAX)
    fingerprint = reader.fingerprint_before(partition, offset, bounds=bounds)
    return Looked(partition, cluster, own_id, present, former, move, counted, ahead, fingerprint)


def execute(connection: Connection[Any], looked: Looked, *, who: str, reason: str, accept_loss: bool) -> int:
    """Set the position and write the audit row, in one transaction; returns the new epoch.

    Args:
        connection: idle; left idle.
        looked: what was looked at just before.
        who: the person, for the audit.
        reason: the person's own words.
        accept_loss: the person accepts what ``looked.lost`` says.

    Raises:
        Refused: ``position_refused``: records would be lost, or the row changed meanwhile; nothing was changed.
        psycopg.Error: nothing was changed, unless the answer to COMMIT was lost.
    """
    if looked.lost is not None and not accept_loss:
        raise Refused(
            "position_refused",
            f"this would lose {looked.lost}",
            "Look at the range first; add --accept-loss when the loss is decided.",
        )
    moved = {"next_offset": looked.move.next_offset, "fingerprint": looked.fingerprint}
    given = {**looked.key, **moved, "topic": looked.partition.topic, "owner": f"set by {who}"}
    with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(_SQL["limits"], {"lock_timeout": LOCK_TIMEOUT, "statement_timeout": STATEMENT_TIMEOUT})
        before = cursor.execute(_SQL["position_locked"], looked.key).fetchone()
        _refuse_change(looked, before)
        row = cursor.execute(_SQL["begin_position" if before is None else "set_position"], given).fetchone()
        if row is None:
            raise _changed("another process began this partition")
        counted = {"records": looked.counted.records, "with_state": looked.counted.with_state}
        after = {**moved, "epoch": row["epoch"], "accepted_loss": looked.lost, **counted}
        audited = {
            "who": who,
            "action": "progress_set",
            "subject": f"{looked.partition} of topic id {shown_topic_id(looked.topic_id)} in cluster {looked.cluster_id}",
            "before": json.dumps(before),
            "after": json.dumps(after),
            "reason": reason,
        }
        cursor.execute(_SQL["audit"], audited)
    return int(row["epoch"])


def _refuse_change(looked: Looked, before: Mapping[str, Any] | None) -> None:
    """A processor may have gone on meanwhile, which only shortens what is skipped; anything else needs a new look."""
    if (before is None) != (looked.present is None):
        raise _changed("the row of this partition appeared or went away")
    if before is None or looked.present is None:
        return
    moved_back = before["next_offset"] < looked.present["next_offset"]
    passed = looked.move.kind == "skip" and before["next_offset"] > looked.move.next_offset
    if moved_back or passed:
        raise _changed(f"the position moved from {looked.present['next_offset']} to {before['next_offset']}")


def _changed(what: str) -> Refused:
    return Refused("position_refused", f"{what} meanwhile; nothing was changed", "Look again, then decide.")


class _Counting:
    """Counts records of one partition, and how many of them have a state."""

    def __init__(
        self, connection: Connection[Any], reader: LogReader, *, partition: Partition, trust: Trust, topic_id: str
    ) -> None:
        self._connection = connection
        self._reader = reader
        self._partition = partition
        self._trust = trust
        self._topic_id = topic_id

    def count(self, held: tuple[int, int], *, records_max: int) -> Counted:
        """Count from the first offset to before the other one; when there are more than ``records_max``, not all."""
        first, end = held
        records = with_state = 0
        found = self._reader.records(self._partition, first, end=end)
        for page in pages(islice(found, records_max + 1), size=COUNT_PAGE_RECORDS):
            if records + len(page) > records_max:
                return Counted(records, with_state, complete=False)
            records, with_state = records + len(page), with_state + self._with_state(page)
        return Counted(records, with_state)

    def _with_state(self, page: Sequence[Record]) -> int:
        place = {"topic_id": self._topic_id, "partition": self._partition.number}
        with self._connection.transaction():
            asked = {**_identities(page, self._trust), **place}
            row = self._connection.execute(_SQL["records_with_state"], asked).fetchone()
        assert row is not None, "a count always has one row"
        return int(row[0])


def _identities(page: Sequence[Record], trust: Trust) -> dict[str, list[Any]]:
    """Nobody vouches for a record without an attestation: it has a state only when its own bytes are in quarantine."""
    identities = [event.identity if (event := _event(record, trust)) is not None else None for record in page]
    return {
        "accounts": [one.account if one is not None else None for one in identities],
        "modes": [one.mode if one is not None else None for one in identities],
        "event_ids": [one.event_id if one is not None else None for one in identities],
        "offsets": [record.offset for record in page],
    }


def _event(record: Record, trust: Trust) -> EventRecord | None:
    opened = open_event(
        topic=record.partition.topic,
        value=record.value or b"",
        headers=record.headers,
        deployment=trust.deployment,
        keys=trust.keys,
    )
    return opened if isinstance(opened, EventRecord) else None
