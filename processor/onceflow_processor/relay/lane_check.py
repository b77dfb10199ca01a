"""The processor's look at the lanes before it hands out sequences.

Rule: a restored database must not hand out a sequence that the topic already has.  The look is made at start and after
every new database connection, while a relay may be at work: what its open transaction holds counts as if it were
committed, and where that would be too far, the end of the transaction is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import psycopg
import structlog
from psycopg.rows import tuple_row

from onceflow_processor.relay.cursor import Agrees, Disagrees, OutcomeRecord, judge_head
from onceflow_processor.relay.inspection import Observed, check_shape, observe, topic_changed
from onceflow_processor.relay.kafka_clients import Refusals
from onceflow_processor.relay.lane_store import LOCK_TIMEOUT_MS, STATEMENT_TIMEOUT_MS, LaneRow, database_failures
from onceflow_processor.relay.topic_tail import TopicFacts, TopicTail
from onceflow_schemas.failure import Misconfigured, Unavailable
from onceflow_schemas.sql import queries

OPEN_POLL_SECONDS: Final = 0.1
SERVICE_SECONDS_MAX: Final = 30.0
"""How long a service waits for a look: longer than the relay's transaction timeout, because one that a dead relay left
open is waited for."""

HANDS_OUT: Final = ("ok", "stopped:unpublishable")
"""Lane states in which a sequence may be handed out."""

COMES_BACK: Final = ("behind", "recovering")
"""Lane states in which outcomes of the topic, and the facts that they tell, are not in the database yet; statement ``tail_facts``."""

_SQL = queries("relay")
_log = structlog.get_logger("onceflow.lanes")


@dataclass(frozen=True, slots=True)
class LaneVerdict:
    """The state of a lane after the look, and what it rests on; ``open`` when sequences may be handed out."""

    lane: int
    state: str
    detail: str

    @property
    def open(self) -> bool:
        """Whether a sequence may be handed out."""
        return self.state in HANDS_OUT


def check_lanes(
    connection: psycopg.Connection[Any],
    *,
    kafka: Mapping[str, object],
    outcome_topic: str,
    group: str,
    deadline_seconds: float,
) -> list[LaneVerdict]:
    """Compare every lane's head with the topic, and close or open it by what is found.

    Args:
        connection: the database that will hand out sequences, not inside a transaction.
        kafka: librdkafka properties.
        outcome_topic: the topic.
        group: the relay's group, where its cursors are.
        deadline_seconds: for all of it; longer than the relay's transaction timeout of 20 s, since one that a dead relay
            left open is waited for.

    Raises:
        Unavailable: Kafka or the database did not answer in time.
        Misconfigured: the topic or the lanes are missing or do not fit, or Kafka refuses our credentials.
    """
    refusals = Refusals()
    give_up_at = time.monotonic() + deadline_seconds
    try:
        with TopicTail(
            kafka, topic=outcome_topic, group=group, deadline_seconds=deadline_seconds, refusals=refusals
        ) as tail:
            return _look_until_settled(connection, tail, topic=outcome_topic, give_up_at=give_up_at)
    except Unavailable as failure:
        if refusals.last is not None:
            raise Misconfigured("broker_refused", f"Kafka refused our credentials: {refusals.last}") from failure
        raise


def count_closed_lanes(
    connection: psycopg.Connection[Any], *, kafka: Mapping[str, object], outcome_topic: str, group: str
) -> int:
    """Look at the lanes as a service does; log each one that is not ok, and return how many hand out no sequence.

    Args and errors as those of ``check_lanes``, within ``SERVICE_SECONDS_MAX``.
    """
    verdicts = check_lanes(
        connection, kafka=kafka, outcome_topic=outcome_topic, group=group, deadline_seconds=SERVICE_SECONDS_MAX
    )
    for verdict in verdicts:
        if verdict.state != "ok":
            _log.error("lane_not_ok", lane=verdict.lane, state=verdict.state, detail=verdict.detail)
    return sum(not verdict.open for verdict in verdicts)


@dataclass(frozen=True, slots=True)
class _Pending:
    """An unfinished transaction holds more than this lane has handed out."""

    lane: int


def _look_until_settled(
    connection: psycopg.Connection[Any], tail: TopicTail, *, topic: str, give_up_at: float
) -> list[LaneVerdict]:
    facts = tail.facts()
    while True:
        found = _look(connection, tail, facts=facts, topic=topic)
        if isinstance(found, list):
            return found
        if time.monotonic() + OPEN_POLL_SECONDS > give_up_at:
            raise Unavailable("broker_unavailable", f"a transaction stays open in lane {found.lane}")
        time.sleep(OPEN_POLL_SECONDS)


def _look(
    connection: psycopg.Connection[Any], tail: TopicTail, *, facts: TopicFacts, topic: str
) -> list[LaneVerdict] | _Pending:
    lanes = range(facts.partitions)
    seen = dict(observe(tail, lanes))
    unfinished = {lane: tail.open_record(lane, seen[lane].extent) for lane in lanes}
    limits = {"lock_timeout": str(LOCK_TIMEOUT_MS), "statement_timeout": str(STATEMENT_TIMEOUT_MS)}
    with database_failures(), connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(_SQL["limits"], limits)
        # Locked until the states are written: no head moves between the decision and its effect.
        rows = [LaneRow(*row) for row in cursor.execute(_SQL["lanes_locked"]).fetchall()]
        check_shape(rows, facts, topic=topic)
        for row in rows:
            held = unfinished[row.lane]
            if isinstance(held, OutcomeRecord) and held.seq > row.head:
                return _Pending(row.lane)
        known = _known(cursor, rows, seen)
        verdicts = [_verdict(row, seen[row.lane], facts=facts, known=known[row.lane]) for row in rows]
        changed = [(row, verdict) for row, verdict in zip(rows, verdicts, strict=True) if row.state != verdict.state]
        if any(verdict.state == "behind" for _, verdict in changed):
            cursor.execute(_SQL["restore_noticed"])
        for row, verdict in changed:
            given = {"lane": row.lane, "state": verdict.state, "detail": verdict.detail}
            cursor.execute(_SQL["set_head_state"], given)
            _log.warning(
                "lane_state", lane=row.lane, former_state=row.state, state=verdict.state, detail=verdict.detail
            )
    return verdicts


def _known(
    cursor: psycopg.Cursor[tuple[Any, ...]], rows: Sequence[LaneRow], seen: Mapping[int, Observed]
) -> dict[int, dict[int, UUID]]:
    asked = [(row.lane, seq) for row in rows for seq in [*seen[row.lane].seqs, row.published]]
    found: dict[int, dict[int, UUID]] = {row.lane: {} for row in rows}
    given = {"lanes": [lane for lane, _ in asked], "seqs": [seq for _, seq in asked]}
    for lane, seq, ce_id in cursor.execute(_SQL["lane_ids"], given).fetchall():
        found[lane][seq] = ce_id
    return found


def _verdict(row: LaneRow, seen: Observed, *, facts: TopicFacts, known: Mapping[int, UUID]) -> LaneVerdict:
    found: Agrees | Disagrees | None = topic_changed(row, facts)
    if found is None:
        found = judge_head(seen.cursor, seen.last, extent=seen.extent, lane=row.numbers, known=known)
    # Only a lane that hands out, or that was behind, is ours to change; every other state is the relay's or a person's.
    if isinstance(found, Disagrees) and row.state in (*HANDS_OUT, "behind"):
        return LaneVerdict(row.lane, found.state, found.detail)
    if isinstance(found, Agrees) and row.state == "behind":
        return LaneVerdict(row.lane, "ok", "")
    return LaneVerdict(row.lane, row.state, row.detail)
