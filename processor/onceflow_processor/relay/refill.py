"""An operator's refill: outcomes that the topic lost in its middle are published again, with their ids and sequences.

Rule: it acts as a relay does (lease, fence, a look at the lane), scans again under the lease, and leaves the cursor where it was, so
a repeat finds nothing to do.  The audit is written before the first record, so no refill is without one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from onceflow_processor.relay.cursor import Agrees, Mark
from onceflow_processor.relay.encoding import Encoder, Prepared
from onceflow_processor.relay.holes import Scan, find_holes
from onceflow_processor.relay.inspection import inspect
from onceflow_processor.relay.kafka_clients import Refusals
from onceflow_processor.relay.lane_store import LaneStore, database_failures
from onceflow_processor.relay.lease import Lease, lease_name
from onceflow_processor.relay.publish import Published
from onceflow_processor.relay.resume_lane import LEASE_TTL_SECONDS, ResumeSettings, acquire, open_publisher
from onceflow_processor.relay.topic_tail import TopicTail
from onceflow_schemas.failure import Refused, Unavailable
from onceflow_schemas.sql import queries

SCAN_SECONDS_MAX: Final = 600.0
BATCH_RECORDS_MAX: Final = 200
ROW_BYTES_MAX: Final = 1
"""A page takes rows while those before them are smaller: one."""
KEEP_EVERY_RECORDS: Final = 1_000
_SQL = queries("operating")


@dataclass(frozen=True, slots=True)
class Found:
    """A lane's holes, and where its cursor stands."""

    scan: Scan
    published: int
    cursor: Mark | None


def look(
    connection: psycopg.Connection[Any],
    settings: ResumeSettings,
    *,
    lane: int,
    keep_lease: Callable[[], None] = lambda: None,
) -> Found:
    """Scan a lane's partition for sequences that are missing; changes nothing.

    Raises:
        Refused: ``resume_refused``: there is no such lane, or it does not agree with its topic otherwise.
        Failure: Kafka or the database is away.
    """
    store = LaneStore(connection, lease_name=lease_name(settings.outcome_topic))
    if lane not in {row.lane for row in store.lanes()}:
        raise Refused("resume_refused", f"there is no lane {lane}", "See `onceflow lanes show`.")
    with TopicTail(
        settings.kafka,
        topic=settings.outcome_topic,
        group=settings.group,
        deadline_seconds=SCAN_SECONDS_MAX,
        refusals=Refusals(),
    ) as tail:
        [found] = inspect(store, tail, topic=settings.outcome_topic, keep_lease=keep_lease, lanes=[lane])
        if found.row.state != "ok" or not isinstance(found.verdict, Agrees):
            raise Refused("resume_refused", f"the lane is {found.row.state}: {found.verdict}", "Mend that first.")
        extent = found.seen.extent

        def records() -> Any:
            for number, record in enumerate(tail.records_around(lane, 0, extent=extent)):
                if number % KEEP_EVERY_RECORDS == 0:
                    keep_lease()
                yield record

        scan = find_holes(records(), from_start=extent.low == 0, published=found.row.published)
    return Found(scan, found.row.published, found.verdict.cursor)


def refill(
    connection: psycopg.Connection[Any],
    settings: ResumeSettings,
    *,
    lane: int,
    deployment: str,
    who: str,
    reason: str,
) -> Found:
    """Publish what is missing; returns what was found to be missing.

    Raises:
        Refused: ``resume_refused``: it cannot be done so, or a relay is active; nothing was published.
        Failure: Kafka or the database is away; the command may be repeated.
    """
    name = lease_name(settings.outcome_topic)
    lease = Lease(connection, name=name, owner=settings.owner, ttl_seconds=LEASE_TTL_SECONDS, clock=time.monotonic)
    acquire(lease)
    try:
        publisher = open_publisher(settings, lease)
        try:
            publisher.start()
            found = look(connection, settings, lane=lane, keep_lease=lease.keep)
            if found.scan.fault:
                raise Refused("resume_refused", found.scan.fault, "Find out who writes to the outcome topic.")
            if not found.scan.missing:
                return found
            assert found.cursor is not None, "a topic with holes has a last record"
            records = _records(LaneStore(connection, lease_name=name), lane, found.scan.missing, deployment=deployment)
            _audit(connection, settings, lane=lane, missing=found.scan.missing, who=who, reason=reason)
            for start in range(0, len(records), BATCH_RECORDS_MAX):
                batch = records[start : start + BATCH_RECORDS_MAX]
                answer = publisher.publish({lane: batch}, recommit={lane: found.cursor})
                if not isinstance(answer, Published) or answer.refused:
                    raise Unavailable("broker_unavailable", f"Kafka did not take a refill: {answer}")
        finally:
            publisher.close()
    finally:
        lease.release()
    return found


def _records(store: LaneStore, lane: int, missing: list[int], *, deployment: str) -> list[Prepared]:
    encoder = Encoder(deployment=deployment, refill=True)
    records = []
    for seq in missing:
        rows = store.page(lane, after_seq=seq - 1, rows_max=1, bytes_max=ROW_BYTES_MAX)
        prepared = encoder.encode(rows[0]) if rows else None
        if not isinstance(prepared, Prepared):
            raise Refused(
                "resume_refused",
                f"the outcome {seq} is not in the database any more",
                "Restore it into onceflow.outcome from a backup, then look again.",
            )
        records.append(prepared)
    return records


def _audit(
    connection: psycopg.Connection[Any],
    settings: ResumeSettings,
    *,
    lane: int,
    missing: list[int],
    who: str,
    reason: str,
) -> None:
    given = {
        "who": who,
        "action": "lane_refill",
        "subject": f"lane {lane} of {settings.outcome_topic}",
        "before": json.dumps({"missing": missing}),
        "after": json.dumps({"missing": []}),
        "reason": reason,
    }
    with database_failures(), connection.transaction():
        connection.execute(_SQL["audit"], given)
