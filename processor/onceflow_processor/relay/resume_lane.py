"""An operator's decision about a lane: look at it, then let it go on, under the relay's own lease.

Rule: it acts as a relay does: the lease is held, the former producer is fenced and its open transaction ended, the lane
is looked at again, and only then is anything written.  The row and the audit are one transaction.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Final

import psycopg

from onceflow_processor.relay.cursor import Mark, OutcomeRecord, StrangeRecord, encode_metadata
from onceflow_processor.relay.inspection import Inspected, inspect
from onceflow_processor.relay.kafka_clients import Refusals, open_producer, open_reader
from onceflow_processor.relay.lane_store import (
    LOCK_TIMEOUT_MS,
    STATEMENT_TIMEOUT_MS,
    LaneRow,
    LaneStore,
    database_failures,
)
from onceflow_processor.relay.lease import Lease, lease_name
from onceflow_processor.relay.publish import Publisher
from onceflow_processor.relay.resumption import (
    Decision,
    Resume,
    Situation,
    decide,
    refusal,
    with_rows,
    without_look,
)
from onceflow_processor.relay.topic_tail import TopicTail
from onceflow_schemas.failure import Refused
from onceflow_schemas.sql import queries

LEASE_TTL_SECONDS: Final = 30.0
LEASE_WAIT_SECONDS_MAX: Final = 12.0
"""A relay that was just ended without giving its lease back holds it for some seconds more."""
LEASE_POLL_SECONDS: Final = 0.5
LOOK_SECONDS_MAX: Final = 60.0
WALK_RECORDS_MAX: Final = 200_000
"""Records that are walked through in search of the lane's last outcome behind what others wrote."""
_SQL = queries("operating")
_RELAY = queries("relay")


@dataclass(frozen=True, slots=True)
class ResumeSettings:
    """The relay's own: librdkafka properties, topic, group, transactional id; ``owner`` for the lease."""

    kafka: Mapping[str, object]
    outcome_topic: str
    group: str
    transactional_id: str
    owner: str


@dataclass(frozen=True, slots=True)
class LookedAt:
    """A lane, what the topic says about it, and how it may go on; ``inspected`` is None when its state decides alone."""

    row: LaneRow
    inspected: Inspected | None
    decision: Decision


def look(
    connection: psycopg.Connection[Any],
    settings: ResumeSettings,
    *,
    lane: int,
    keep_lease: Callable[[], None] = lambda: None,
) -> LookedAt:
    """Compare a lane with its partition; changes nothing.

    Args:
        connection: an autocommit one.
        settings: the relay's.
        lane: its number.
        keep_lease: called between steps, when a lease is held.

    Raises:
        Refused: ``resume_refused``: there is no such lane.
        Failure: Kafka or the database is away, or the topic does not fit the lanes.
    """
    store = LaneStore(connection, lease_name=lease_name(settings.outcome_topic))
    row = next((one for one in store.lanes() if one.lane == lane), None)
    if row is None:
        raise Refused("resume_refused", f"there is no lane {lane}", "See `onceflow lanes show`.")
    early = without_look(lane=lane, state=row.state, published=row.published)
    if early is not None:
        return LookedAt(row, None, early)
    with TopicTail(
        settings.kafka,
        topic=settings.outcome_topic,
        group=settings.group,
        deadline_seconds=LOOK_SECONDS_MAX,
        refusals=Refusals(),
    ) as tail:
        [found] = inspect(store, tail, topic=settings.outcome_topic, keep_lease=keep_lease, lanes=[lane])
        latest = _latest(tail, found)
    situation = _situation(found, latest, store=store)
    decision = decide(situation)
    if isinstance(decision, Resume):
        decision = with_rows(decision, situation, kept=_rows_kept(connection, situation, decision))
    return LookedAt(found.row, found, decision)


def resume(
    connection: psycopg.Connection[Any],
    settings: ResumeSettings,
    *,
    lane: int,
    who: str,
    reason: str,
    accept: str | None,
) -> LookedAt:
    """Let a lane go on; returns what was decided on.

    Args:
        connection: an autocommit one.
        settings: the relay's.
        lane: its number.
        who: the person, for the audit.
        reason: the person's own words.
        accept: the code of the consequence that the person accepts.

    Raises:
        Refused: ``resume_refused``: it may not go on so, or a relay is active; nothing was changed.
        Failure: Kafka or the database is away; the lane still stands, and the command may be repeated.
    """
    _refuse(look(connection, settings, lane=lane).decision, accept=accept)
    lease = Lease(
        connection,
        name=lease_name(settings.outcome_topic),
        owner=settings.owner,
        ttl_seconds=LEASE_TTL_SECONDS,
        clock=time.monotonic,
    )
    acquire(lease)
    try:
        publisher = open_publisher(settings, lease)
        try:
            publisher.start()
            looked = look(connection, settings, lane=lane, keep_lease=lease.keep)
            decision = _refuse(looked.decision, accept=accept)
            if decision.cursor is not None:
                publisher.publish({}, recommit={lane: decision.cursor})
        finally:
            publisher.close()
        _write(connection, looked, decision, settings=settings, token=lease.token, who=who, reason=reason)
    finally:
        lease.release()
    return looked


def _refuse(decision: Decision, *, accept: str | None) -> Resume:
    no = refusal(decision, accept=accept)
    if no is not None:
        raise Refused("resume_refused", no.reason, no.next_step)
    assert isinstance(decision, Resume), "everything else is refused"
    return decision


def acquire(lease: Lease) -> None:
    """Wait a little for the lease.

    Raises:
        Refused: ``resume_refused``: a relay is active.
    """
    give_up_at = time.monotonic() + LEASE_WAIT_SECONDS_MAX
    pause = threading.Event()
    while not lease.acquire():
        if time.monotonic() > give_up_at:
            raise Refused(
                "resume_refused",
                "a relay is active",
                "Stop every relay of this deployment for the moment of this command; outcomes wait meanwhile.",
            )
        pause.wait(LEASE_POLL_SECONDS)


def open_publisher(settings: ResumeSettings, lease: Lease) -> Publisher:
    """Return the publisher of one decision, under its lease; it is not started."""
    refusals = Refusals()
    reader = open_reader(settings.kafka, group=settings.group, isolation="read_committed", refusals=refusals)
    try:
        group_metadata = reader.consumer_group_metadata()
    finally:
        reader.close()
    producer = open_producer(
        settings.kafka, transactional_id=settings.transactional_id, record_bytes_max=None, refusals=refusals
    )
    return Publisher(
        producer,
        topic=settings.outcome_topic,
        group_metadata=group_metadata,
        keep_lease=lease.keep,
        lease_seconds=lease.remaining_seconds,
    )


def _latest(tail: TopicTail, found: Inspected) -> OutcomeRecord | None:
    """Return the lane's last outcome, also where others wrote behind it."""
    last = found.seen.last
    if not isinstance(last, StrangeRecord):
        return last
    latest: OutcomeRecord | None = None
    records = tail.records_around(found.row.lane, found.row.published, extent=found.seen.extent)
    for number, record in enumerate(islice(records, WALK_RECORDS_MAX + 1), start=1):
        if number > WALK_RECORDS_MAX:
            raise Refused(
                "resume_refused",
                f"more than {WALK_RECORDS_MAX} records lie behind the lane's last outcome",
                "Find out who wrote them.",
            )
        if isinstance(record, OutcomeRecord) and not record.refill:
            latest = record
    return latest


def _situation(found: Inspected, latest: OutcomeRecord | None, *, store: LaneStore) -> Situation:
    row = found.row
    known = dict(found.known)
    if latest is not None:
        known |= store.ids([(row.lane, latest.seq)])[row.lane]
    return Situation(
        lane=row.lane,
        state=row.state,
        head=row.head,
        published=row.published,
        topic_id=row.topic_id,
        current_topic_id=found.topic_id,
        extent=found.seen.extent,
        last=found.seen.last,
        latest=latest,
        known=known,
        verdict=found.verdict,
    )


def _rows_kept(connection: psycopg.Connection[Any], found: Situation, decision: Resume) -> int:
    given = {"lane": found.lane, "after_seq": decision.published, "last_seq": found.published}
    with database_failures():
        row = connection.execute(_SQL["rows_kept"], given).fetchone()
    assert row is not None, "a count always has one row"
    return int(row[0])


def _write(
    connection: psycopg.Connection[Any],
    looked: LookedAt,
    decision: Resume,
    *,
    settings: ResumeSettings,
    token: int,
    who: str,
    reason: str,
) -> None:
    row = looked.row
    given = {
        "name": lease_name(settings.outcome_topic),
        "token": token,
        "lane": row.lane,
        "published": decision.published,
        "topic_id": decision.topic_id,
        "state": decision.state,
        "detail": "" if decision.state == "ok" else decision.consequence,
        "from_state": row.state,
        "from_published": row.published,
        "from_topic_id": row.topic_id,
    }
    after = {
        "published": decision.published,
        "topic_id": decision.topic_id,
        "state": decision.state,
        "cursor": _shown(decision.cursor),
        "accepted": decision.accept,
        "consequence": decision.consequence,
    }
    audited = {
        "who": who,
        "action": "lane_resume",
        "subject": f"lane {row.lane} of {settings.outcome_topic}",
        "before": json.dumps(asdict(row)),
        "after": json.dumps(after),
        "reason": reason,
    }
    limits = {"lock_timeout": f"{LOCK_TIMEOUT_MS}ms", "statement_timeout": f"{STATEMENT_TIMEOUT_MS}ms"}
    with database_failures(), connection.transaction():
        connection.execute(_SQL["limits"], limits)
        if decision.state == "behind":
            # Before the lane, as everybody locks; a lane that lost its tail was not known to be put back.
            connection.execute(_RELAY["restore_noticed"])
        if connection.execute(_SQL["resume_lane"], given).rowcount != 1:
            raise Refused(
                "resume_refused", "the lane changed meanwhile; nothing was written", "Look again, then decide."
            )
        connection.execute(_SQL["audit"], audited)


def _shown(cursor: Mark | None) -> str | None:
    return None if cursor is None else f"offset {cursor.next_offset}: {encode_metadata(cursor)}"
