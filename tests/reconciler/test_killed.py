"""Whoever is killed between two writes has written all that belongs together or nothing, and the next one does it once."""

from __future__ import annotations

from typing import Any

import psycopg

from onceflow_reconciler.finding import Finding
from onceflow_reconciler.finding_store import record
from tests.processor.armed import killed_at
from tests.reconciler.conftest import PLATFORM, ReconcilerRoad
from tests.reconciler.test_findings import command
from tests.reconciler.test_healing import PARKED, trace, waiting
from tests.reconciler.test_objects import OPERATION, charged, client_of, insert_operation
from tests.reconciler.test_retiring import find

TABLES = ("finding", "remedy", "operation_hint")


def killed(road: ReconcilerRoad, point: str, *, at: int = 1, command: str = "reconcile --once") -> None:
    """Killed there; its lease ends, as it does by itself some seconds later."""
    killed_at(road, point, at=at, command=command)
    with psycopg.connect(road.database_url) as connection:
        connection.execute("UPDATE onceflow.lease SET lease_until = clock_timestamp() WHERE lease_until < 'infinity'")


def written(road: ReconcilerRoad) -> tuple[int, ...]:
    """How many rows each table has, but for what is found about surroundings."""
    counts = []
    for table in TABLES:
        only = "WHERE kind NOT LIKE 'endpoint%%' AND kind <> 'clock_skew'" if table == "finding" else ""
        [row] = road.rows(f"SELECT count(*) AS n FROM onceflow.{table} {only}")
        counts.append(row["n"])
    return tuple(counts)


def test_a_reconciler_that_is_killed_between_its_writes(road: ReconcilerRoad) -> None:
    """An event that was missed, and an operation behind its object: each is found, brought or looked at, and told, once."""
    [event_id] = road.customers(1)
    made = charged(road)
    insert_operation(road, state="unknown", external_id=None)
    road.stripe.advance(5)
    made_at = int(road.stripe.state()["now"]) - 10
    listed = len(client_of(road).v1.events.list({"limit": 100}).data)
    # Findings and their commit.
    killed(road, "reconciler.in_findings")
    assert written(road) == (0, 0, 0)
    assert road.cursor().timestamp() < made_at
    # The remedies of the events are written, their cursor has not moved.
    killed(road, "reconciler.after_remedied")
    assert written(road) == (listed, listed, 0)
    assert road.cursor().timestamp() < made_at
    # Now they wait in the topic, and are brought no second time; the operation's hint is not committed.
    killed(road, "reconciler.in_look")
    assert written(road) == (listed, listed, 0)
    assert road.cursor().timestamp() >= made_at
    for _ in range(2):
        found = road.once(status=1)[PLATFORM]
        assert (found["missed"], found["drifts"]) == (0, 1)
        assert written(road) == (listed + 1, listed + 1, 1), "a hint that waits is given and told once"
    assert road.rows("SELECT object_id FROM onceflow.operation_hint") == [{"object_id": made}]
    road.settle(listed)
    assert [row["event_id"] for row in road.rows("SELECT event_id FROM public.seen")] == [event_id]
    answer = road.answer(with_stripe=False)
    assert (answer.unexplained, answer.events) == ((), listed)


def test_one_that_is_killed_while_it_deletes_what_is_old(road: ReconcilerRoad) -> None:
    with psycopg.connect(road.database_url, autocommit=True) as connection:
        old = find(connection, "missed_event", "healed", days=400)
        young = find(connection, "missed_event", "healed", days=300)
    killed(road, "reconciler.in_retention")
    assert subjects(road) == {old, young}
    road.once()
    assert subjects(road) == {young}
    assert road.rows("SELECT name, deleted FROM onceflow.retention ORDER BY name") == [
        {"name": "finding", "deleted": 1},
        {"name": "reconcile_hour", "deleted": 0},
    ]


def subjects(road: ReconcilerRoad) -> set[str]:
    return {row["subject"] for row in road.findings()}


def test_one_that_is_killed_behind_what_nobody_lists_any_more(road: ReconcilerRoad) -> None:
    """Objects are read from before that time, also when the finding was written by somebody who went no further."""
    day = 24 * 3600
    charged(road)
    road.stripe.advance(40 * day)
    with psycopg.connect(road.database_url) as connection:
        now = int(road.stripe.state()["now"])
        connection.execute(
            "INSERT INTO onceflow.reconcile_cursor (account, mode, source, done_until)"
            " SELECT %s, 'test', source, to_timestamp(%s) FROM unnest(ARRAY['events', 'payment_intent']) AS source",
            [PLATFORM, now - 31 * day],
        )
        connection.execute(
            "UPDATE onceflow.reconcile_cursor SET done_until = to_timestamp(%s) WHERE source <> 'events'", [now]
        )
    killed(road, "reconciler.before_set_back")
    [finding] = [row for row in road.findings() if row["kind"] == "events_out_of_reach"]
    [moved] = road.rows("SELECT count(*) AS n FROM onceflow.reconcile_cursor WHERE done_until <> to_timestamp(%s)", now)
    assert moved == {"n": 1}, "no list of objects was set back, and that of events stays where it was"
    assert road.once(status=1, first_seconds=day)[PLATFORM]["objects"] == 1
    assert [row for row in road.findings() if row["kind"] == "events_out_of_reach"] == [finding], "one finding"


def test_a_person_whose_command_is_killed_has_decided_nothing(road: ReconcilerRoad) -> None:
    insert_operation(road, state="unknown", external_id=None)
    with psycopg.connect(road.database_url, autocommit=True) as connection:
        connection.execute(PARKED)
        facts: dict[str, Any] = {"operation_id": str(OPERATION), "order_key": "acct_simulator/cus_1"}
        look, retry, lost = record(
            connection, [Finding(kind, "x", PLATFORM, "test", facts) for kind in ("operation_behind", "parked_too_long", "lane_gap")]
        )  # fmt: skip
    before = waiting(road)
    heal = f"findings heal {look} {retry} --reason now --execute"
    killed_at(road, "findings.before_heal_commit", command=heal)
    assert (waiting(road), trace(road)) == (before, ({}, {}))
    # All remedies of a command are one commit.
    killed_at(road, "findings.before_heal_commit", at=2, command=heal)
    assert (waiting(road), trace(road)) == (before, ({}, {}))
    command(road, *heal.split()[1:])
    assert waiting(road) == [(True, True, True)]
    accept = f"findings accept {lost} --reason known --execute"
    killed_at(road, "findings.before_accept_commit", command=accept)
    assert "accepted" not in {row["state"] for row in road.findings()}
    command(road, *accept.split()[1:])
    done, audited = trace(road)
    assert (done, audited) == ({"look": 1, "retry": 1}, {"finding_heal": 2, "finding_accept": 1})
