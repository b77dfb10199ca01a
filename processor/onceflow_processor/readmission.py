"""Records that nobody vouched for, looked at again because a person asks: with the rules of today.

Rule: the record takes the same road as a new one, through the same admission and the same marker; what is vouched for now is
parked and redriven, and a second one of the same event has no effect.  A record is noted as retried only where its event is done
or waits for its turn; else it stays with a person.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
import structlog
from psycopg import Connection

from onceflow_processor.admission import Fault, Item, Rules, admit, stranger
from onceflow_processor.arrays import Texts
from onceflow_processor.claim import OUT_OF_TURN, claim, event_of
from onceflow_processor.database import first_line
from onceflow_processor.handlers import Handlers
from onceflow_processor.kept_records import headers_from, identity_columns, safe_text, timestamp_ms_of
from onceflow_processor.parking import Waiting
from onceflow_processor.parking_tail import write_parking
from onceflow_processor.records import Partition, Record
from onceflow_processor.sqlstates import Meaning, meaning_of
from onceflow_schemas.event_moves import State
from onceflow_schemas.sql import queries

ROWS_MAX = 20
"""Records that are looked at in one turn, between two batches."""

LOOK_SECONDS = 2.0

_SQL = queries("parking")
_BATCH = queries("batch")

log = structlog.get_logger("onceflow.processor")


class Readmission:
    """Looks at the records that are asked about, in the worker's thread.

    Only at those of ``topics``, which this process reads: another's settings may not know their format or their secrets.
    """

    def __init__(
        self, *, rules: Rules, topics: Sequence[str], handlers: Handlers, connection: Callable[[], Connection[Any]]
    ) -> None:
        self._rules = rules
        self._topics = Texts(topics)
        self._handlers = handlers
        self._connection = connection
        self._look_at = 0.0

    def turn(self) -> None:
        """Look at some records, if any are asked about.

        Raises:
            psycopg.Error: the database is away.
        """
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_SECONDS
        connection = self._connection()
        with connection.transaction():
            rows = connection.execute(_SQL["asked_again"], {"rows_max": ROWS_MAX, "topics": self._topics}).fetchall()
        for row in rows:
            try:
                with connection.transaction():
                    self._judge(connection, row)
            except psycopg.Error as error:
                meaning = meaning_of(error)
                if meaning is Meaning.DATA:
                    self._refuse(connection, row, Fault("effect_refused", first_line(error)))
                    continue
                if meaning not in {Meaning.FENCED, Meaning.RERUN}:
                    raise
                log.info("readmission_again", reason=type(error).__name__)

    def _judge(self, connection: Connection[Any], row: tuple[Any, ...]) -> None:
        topic_id, number, offset, topic, key, value, headers, record_time, _ = row
        partition = Partition(topic, number)
        record = Record(
            partition, offset, timestamp_ms_of(record_time), key, value, headers_from(headers), generation=0
        )
        item = admit(record, rules=self._rules, now=datetime.now(UTC))
        place = _place(row)
        fault = item.fault or stranger(item.record, event=event_of(item), envelope=item.take_envelope())
        if fault is not None:
            self._refuse(connection, row, fault)
            return
        event = event_of(item)
        known = {**place, **event.identity._asdict(), "type": event.type}
        fault = self._park(connection, item, topic_id=topic_id)
        if fault is not None:
            connection.execute(_SQL["known_again"], {**known, "code": fault.code, "detail": fault.detail})
            log.info("record_known_again", partition=str(partition), offset=offset, code=fault.code)
            return
        connection.execute(_SQL["admitted_again"], known)
        log.info("record_admitted_again", partition=str(partition), offset=offset, event_id=event.identity.event_id)

    def _refuse(self, connection: Connection[Any], row: tuple[Any, ...], fault: Fault) -> None:
        """A person has to look at it again."""
        place = _place(row)
        detail = safe_text(fault.detail)
        with connection.transaction():
            connection.execute(_SQL["refused_again"], {**place, "code": fault.code, "detail": detail})
        log.info("record_refused_again", partition=place["partition"], offset=place["offset"], code=fault.code)

    def _park(self, connection: Connection[Any], item: Item, *, topic_id: str) -> Fault | None:
        """Take the event's marker and let it be due; why a person still has to look at it, when another record has the marker.

        An event that came by another record meanwhile, and is done or waits for its turn, makes this one a duplicate.
        """
        claimed = claim(
            connection,
            [item],
            entry=OUT_OF_TURN,
            handlers=self._handlers,
            topic_id_of=lambda _: topic_id,
            open_transaction=lambda: None,
        )
        identity = event_of(item).identity
        if claimed.firsts:
            parked = Texts([State.PARKED.value])
            connection.execute(_BATCH["tail_states"], {**identity_columns([identity]), "states": parked})
            waiting = Waiting(item, None, 0.0)
            write_parking(connection, [waiting], topic_ids={item.record.partition.topic: topic_id}, redriven=None)
            return None
        if claimed.conflicts:
            return claimed.conflicts[0][1]
        if connection.execute(_SQL["marker_state"], identity._asdict()).fetchone() == (State.QUARANTINED.value,):
            return Fault("event_quarantined", "another record of the same event is in quarantine")
        return None


def _place(row: tuple[Any, ...]) -> dict[str, Any]:
    """Return what names a row of ``asked_again``."""
    return {"topic_id": row[0], "partition": row[1], "offset": row[2], "retry_asked_at": row[-1]}
