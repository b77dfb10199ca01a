"""The ledger's statements: who gets what, from which index, within which budget."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from onceflow_processor.operations.ledger import Ledger, LedgerSettings
from onceflow_processor.operations.worker import Connections
from onceflow_schemas.sql import queries
from tests.processor.operations.conftest import Desk, Scripted


@pytest.fixture
def opened(desk: Desk) -> Iterator[Connections]:
    made = desk.operator(Scripted()).open()
    yield made
    made.close()


def ledger(desk: Desk, opened: Connections, **settings: object) -> Ledger:
    given: LedgerSettings = desk.running[0].worker._settings.ledger
    made = Ledger(opened.ledger, opened.side, settings=replace(given, **settings))  # type: ignore[arg-type]
    made.open()
    return made


def test_as_many_as_asked_for_the_oldest_first(desk: Desk, opened: Connections) -> None:
    for number in range(5):
        desk.ask(f"in_{number}")
    found = ledger(desk, opened).claim(2, held=[])
    assert [job.operation.subject for job in found.jobs] == ["in_0", "in_1"]
    assert (found.rows, found.waiting, found.behind) == (2, 0, 0)
    assert [job.attempt for job in found.jobs] == [1, 1]


def test_what_is_held_is_not_taken_again_though_its_lease_is_over(desk: Desk, opened: Connections) -> None:
    desk.ask("in_1")
    one = ledger(desk, opened)
    [job] = one.claim(5, held=[]).jobs
    desk.change("UPDATE onceflow.operation SET lease_until = clock_timestamp(), next_attempt_at = clock_timestamp()")
    assert one.claim(5, held=[job.operation.id]).rows == 0
    assert one.heartbeat([job]) == {job.operation.id}
    assert one.claim(5, held=[]).rows == 0


def test_a_heartbeat_of_a_lost_lease_finds_nothing(desk: Desk, opened: Connections) -> None:
    desk.ask("in_1")
    one = ledger(desk, opened)
    [job] = one.claim(5, held=[]).jobs
    desk.change("UPDATE onceflow.operation SET fence = fence + 1")
    assert one.heartbeat([job]) == set()
    assert one.recheck([job]) == {}


def test_a_lease_too_short_for_the_call_is_told(desk: Desk, opened: Connections) -> None:
    desk.ask("in_1")
    one = ledger(desk, opened)
    [job] = one.claim(5, held=[]).jobs
    assert one.recheck([job]) == {job.operation.id: (True, True)}
    desk.change("UPDATE onceflow.operation SET lease_until = clock_timestamp() + interval '2 seconds'")
    assert one.recheck([job]) == {job.operation.id: (False, True)}


def test_a_budget_is_taken_and_what_is_over_it_waits(desk: Desk, opened: Connections) -> None:
    desk.ask(*[f"in_{number}" for number in range(10)])
    one = ledger(desk, opened, requests_per_second=0.5, burst=3)
    found = one.claim(10, held=[])
    assert (len(found.jobs), found.waiting) == (3, 7)
    assert one.claim(10, held=[]).rows == 0
    assert len(desk.rows("SELECT FROM onceflow.operation WHERE state = 'requested' AND lease_owner IS NULL")) == 7
    due = one.next_due_seconds()
    assert due is not None
    assert 0 < due <= 2.0


def test_a_paused_account_gets_one_call_at_a_time(desk: Desk, opened: Connections) -> None:
    desk.ask("in_1", "in_2", "in_3")
    one = ledger(desk, opened)
    desk.change(
        "UPDATE onceflow.account_budget SET paused_reason = 'refused', refusals = 2, blocked_until = clock_timestamp()"
    )
    found = one.claim(10, held=[])
    assert [job.probe for job in found.jobs] == [True]
    assert one.refusals == {"acct_test": 2}
    assert one.claim(10, held=[]).rows == 0
    assert one.paused_accounts() == [("acct_test", "refused")]


def test_who_is_behind_another_is_put_off(desk: Desk, opened: Connections) -> None:
    desk.ask("in_1", "in_2", "in_3", order_key="customer")
    found = ledger(desk, opened).claim(10, held=[])
    assert ([job.operation.subject for job in found.jobs], found.behind) == (["in_1"], 2)
    assert all((row["due_seconds"] or 0) > 10 for subject, row in desk.operations().items() if subject != "in_1")


def test_a_claim_reads_the_indexes_that_it_names(desk: Desk, opened: Connections) -> None:
    [first] = desk.ask("in_1", order_key="customer")
    desk.change(
        "INSERT INTO onceflow.operation (id, account, mode, effect, subject, occurrence, order_key, kind, args,"
        " args_sha256, cause, steps, api_version, window_from, next_attempt_at, state, settled_at)"
        " SELECT gen_random_uuid(), account, mode, effect, 's' || n, 1, order_key, kind, args, args_sha256, cause, steps,"
        " api_version, window_from, CASE WHEN n %% 10 = 0 THEN clock_timestamp() ELSE 'infinity' END,"
        " CASE WHEN n %% 10 = 0 THEN 'requested' ELSE 'succeeded' END, CASE WHEN n %% 10 = 0 THEN NULL ELSE now() END"
        " FROM onceflow.operation, generate_series(1, 20000) AS n WHERE id = %s",
        first,
    )
    desk.change("ANALYZE onceflow.operation")
    given = {
        "accounts": ["acct_test"], "kinds": ["http", "stripe"], "effects": ["refund"], "mode": "test", "held": [],
        "looked_at_max": 205, "behind_seconds": 60, "owner": "me", "ttl_seconds": 30, "count": 5, "unsent": ["not_sent"],
    }  # fmt: skip
    for name in ("claim", "next_due"):
        rows = opened.side.execute(b"EXPLAIN " + queries("operation_work")[name], given).fetchall()
        plan = "\n".join(line for (line,) in rows)
        assert "Index Scan using operation_due" in plan
        assert "Seq Scan on operation" not in plan
        assert ("operation_order" in plan) is (name == "claim")


def test_plans_made_while_a_table_was_small_are_forgotten(desk: Desk, opened: Connections) -> None:
    one = ledger(desk, opened)
    [first] = desk.ask("in_1")
    probe = (
        "PREPARE probe (uuid[]) AS SELECT operation.seq FROM unnest($1) AS asked (id)"
        " JOIN onceflow.operation ON operation.id = asked.id"
    )

    def plan(connection: psycopg.Connection[Any]) -> str:
        rows = connection.execute(f"EXPLAIN EXECUTE probe ('{{{first}}}')", prepare=False).fetchall()
        return "\n".join(line for (line,) in rows)

    for connection in (opened.side, opened.ledger):
        connection.execute("SET plan_cache_mode = force_generic_plan")
        connection.execute(probe)
        assert "Seq Scan on operation" in plan(connection)
    opened.ledger.commit()
    desk.change(
        "INSERT INTO onceflow.operation (id, account, mode, effect, subject, occurrence, kind, args, args_sha256, cause,"
        " steps, api_version, window_from)"
        " SELECT gen_random_uuid(), account, mode, effect, 's' || n, 1, kind, args, args_sha256, cause, steps, api_version,"
        " window_from FROM onceflow.operation, generate_series(1, 2000) AS n WHERE id = %s",
        first,
    )
    assert "Seq Scan on operation" in plan(opened.side)
    one.forget_plans()
    assert "Index Scan using operation_pkey" in plan(opened.side)
    assert "Index Scan using operation_pkey" in plan(opened.ledger)
