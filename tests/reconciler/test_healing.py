"""What ``onceflow findings heal`` does: by the road of live work, twice if need be, and with a trace of who did it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import psycopg
import pytest

from onceflow_reconciler.finding import Finding
from onceflow_reconciler.finding_store import record
from onceflow_reconciler.ledger_checks import look_at_tables
from tests.processor.armed import killed_at
from tests.reconciler.conftest import PLATFORM, MakeReconcilerRoad, ReconcilerRoad
from tests.reconciler.test_findings import IMPATIENT, command
from tests.reconciler.test_missed_events import seen
from tests.reconciler.test_objects import insert_operation

PARKED = (
    "INSERT INTO onceflow.parked_key (order_key, reason, account, mode, event_id, due_at, parked_at)"
    " VALUES ('acct_simulator/cus_1', 'retry', 'acct_simulator', 'test', 'evt_1', clock_timestamp() + interval '1 day',"
    " clock_timestamp() - interval '1 minute')"
)


@pytest.fixture
def one_lane(make_road: MakeReconcilerRoad) -> ReconcilerRoad:
    return make_road(partitions=1)


def numbers(road: ReconcilerRoad) -> dict[str, str]:
    rows = road.rows("SELECT id, kind FROM onceflow.finding WHERE state = 'open'")
    return {row["kind"]: str(row["id"]) for row in rows}


def trace(road: ReconcilerRoad) -> tuple[Counter[str], Counter[str]]:
    """What was done about findings, and what the audit has of it."""
    remedies = Counter(row["action"] for row in road.rows("SELECT action FROM onceflow.remedy"))
    return remedies, Counter(row["action"] for row in road.rows("SELECT action FROM onceflow.audit"))


def test_a_missed_event_is_brought_and_whoever_is_killed_meanwhile_is_followed_by_another(
    one_lane: ReconcilerRoad,
) -> None:
    road = one_lane
    [event_id] = road.customers(1)
    facts = {"event_id": event_id}
    with psycopg.connect(road.database_url) as connection:
        [number] = record(
            connection,
            [Finding("missed_event", f"event {PLATFORM}/test/{event_id}", PLATFORM, "test", facts)],
        )
    command(road, "heal", str(number), "--reason", "now")
    assert trace(road) == (Counter(), Counter()), "a dry run"
    killed_at(road, "reconciler.after_publish", command=f"findings heal {number} --reason now --execute")
    assert trace(road) == (Counter(), Counter()), "it is in the topic, and nobody says so yet"
    command(road, "heal", str(number), "--reason", "now", "--execute")
    assert trace(road) == (Counter({"republish": 1}), Counter({"finding_heal": 1}))
    road.settle(1)
    assert seen(road) == Counter([event_id])
    answer = road.answer(with_stripe=False)
    assert (answer.unexplained, answer.counts["records"]) == ((), {"processed": 1, "duplicate": 1})


def test_workers_and_processors_take_up_what_waits_and_the_rest_needs_a_person(road: ReconcilerRoad) -> None:
    insert_operation(road, state="unknown", external_id=None)
    with psycopg.connect(road.database_url, autocommit=True) as connection:
        connection.execute(PARKED)
        connection.execute("UPDATE onceflow.lane SET state = 'stopped:diverged', detail = 'x' WHERE lane = 0")
        look_at_tables(connection, IMPATIENT)
    found = numbers(road)
    assert set(found) == {"operation_unknown_too_long", "parked_too_long", "lane_stopped"}
    before = waiting(road)
    command(road, "heal", *found.values(), "--reason", "now", status=1)
    assert waiting(road) == before, "a dry run"
    for _ in range(2):
        told = command(road, "heal", *found.values(), "--reason", "now", "--execute", status=1)
        assert "needs a person: onceflow lanes show" in told.stderr
        assert waiting(road) == [(True, True, True)]
    assert trace(road) == (Counter({"look": 2, "retry": 2}), Counter({"finding_heal": 4}))


def waiting(road: ReconcilerRoad) -> list[tuple[Any, ...]]:
    """Whether the operation is to be looked up, and whether it and the key are due."""
    rows = road.rows(
        "SELECT look_asked, next_attempt_at <= clock_timestamp() AS operation_due, due_at <= clock_timestamp() AS key_due"
        " FROM onceflow.operation, onceflow.parked_key"
    )
    return [tuple(row.values()) for row in rows]
