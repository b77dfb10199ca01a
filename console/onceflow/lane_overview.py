"""Reads lanes and their partitions side by side for ``onceflow lanes show``.

Rule: a lane that is being published moves while it is looked at, so only those that stand still are judged; without
Kafka the rows are shown all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

from onceflow_processor.relay.cursor import OutcomeRecord, StrangeRecord, TailRecord
from onceflow_processor.relay.inspection import check_shape
from onceflow_processor.relay.kafka_clients import Refusals
from onceflow_processor.relay.lane_store import LaneRow, LaneStore
from onceflow_processor.relay.lease import lease_name
from onceflow_processor.relay.resume_lane import ResumeSettings, look
from onceflow_processor.relay.resumption import Decision, Fine, NotResumable, Resume
from onceflow_processor.relay.topic_tail import TopicTail
from onceflow_schemas.failure import FAILURES, Failure

LOOK_SECONDS_MAX = 10.0


@dataclass(frozen=True, slots=True)
class LaneShown:
    """A lane; ``topic_seq`` is the topic's last sequence, a word where there is none."""

    row: LaneRow
    topic_seq: str
    meaning: str
    next_step: str


def read_lanes(connection: psycopg.Connection[Any], settings: ResumeSettings) -> tuple[list[LaneShown], Failure | None]:
    """Return every lane with its next step, and the failure when Kafka could not be asked.

    Args:
        connection: an autocommit one.
        settings: the relay's.
    """
    rows = LaneStore(connection, lease_name=lease_name(settings.outcome_topic)).lanes()
    try:
        lasts = _lasts(rows, settings)
        decisions = {row.lane: look(connection, settings, lane=row.lane).decision for row in rows}
    except Failure as failure:
        return [LaneShown(row, "?", _meaning(row.state), "") for row in rows], failure
    return [
        LaneShown(row, _sequence(lasts[row.lane]), _meaning(row.state), next_step(row.lane, decisions[row.lane]))
        for row in rows
    ], None


def next_step(lane: int, decision: Decision) -> str:
    """Return what to type, or to do, as one line."""
    match decision:
        case Fine():
            return ""
        case NotResumable(reason, step):
            return f"{reason}: {step}"
        case Resume():
            accept = f" --accept {decision.accept}" if decision.accept is not None else ""
            return f"onceflow lanes resume {lane}{accept} --reason '...'"


def _lasts(rows: list[LaneRow], settings: ResumeSettings) -> dict[int, TailRecord | None]:
    with TopicTail(
        settings.kafka,
        topic=settings.outcome_topic,
        group=settings.group,
        deadline_seconds=LOOK_SECONDS_MAX,
        refusals=Refusals(),
    ) as tail:
        check_shape(rows, tail.facts(), topic=settings.outcome_topic)
        lanes = [row.lane for row in rows]
        extents = tail.extents(lanes)
        return {lane: tail.last_record(lane, extents[lane]) for lane in lanes}


def _sequence(last: TailRecord | None) -> str:
    match last:
        case None:
            return "none"
        case OutcomeRecord():
            return str(last.seq)
        case StrangeRecord():
            return f"not ours at {last.offset}"


def _meaning(state: str) -> str:
    kind = FAILURES.get(state.removeprefix("stopped:"))
    return "" if kind is None else kind.meaning
