"""Findings of the tables, their life, and what a person sees of them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import psycopg
import pytest

from onceflow_reconciler.ledger_checks import ROWS_MAX, Patience, look_at_tables
from onceflow_schemas.findings import FINDING_KINDS
from onceflow_schemas.sql import queries
from tests.reconciler.conftest import ReconcilerRoad

IMPATIENT = Patience(parked_hours=0, quarantined_hours=0, unknown_minutes=0, lease_minutes=0, unpublished_minutes=0)
RECORD = (
    'INSERT INTO onceflow.quarantine (topic_id, partition, "offset", topic, code, detail, headers, quarantined_at)'
    " SELECT 'T', 0, number, 'events', 'not_json', '', '[]', clock_timestamp() - interval '1 minute'"
    " FROM generate_series(%s::integer, %s::integer) AS number"
)


def findings(connection: psycopg.Connection[Any]) -> dict[str, str]:
    rows = connection.execute("SELECT subject, state FROM onceflow.finding").fetchall()
    return dict(rows)


@pytest.fixture
def connection(fresh_database: str) -> Any:
    with psycopg.connect(fresh_database, autocommit=True) as opened:
        yield opened


def test_every_check_has_a_kind() -> None:
    assert queries("reconcile_ledger").keys() <= FINDING_KINDS.keys()


def test_a_healthy_database_shows_nothing(connection: psycopg.Connection[Any]) -> None:
    assert set(look_at_tables(connection, IMPATIENT).values()) == {0}
    assert findings(connection) == {}


def test_a_finding_is_open_healed_recurring_and_accepted(connection: psycopg.Connection[Any]) -> None:
    connection.execute(RECORD, [1, 1])
    for _ in range(2):
        assert look_at_tables(connection, IMPATIENT)["quarantined_too_long"] == 1
        assert findings(connection) == {"record events/0/1": "open"}
    connection.execute("UPDATE onceflow.quarantine SET decision = 'skipped'")
    look_at_tables(connection, IMPATIENT)
    assert findings(connection) == {"record events/0/1": "healed"}
    connection.execute("UPDATE onceflow.quarantine SET decision = NULL")
    look_at_tables(connection, IMPATIENT)
    assert findings(connection) == {"record events/0/1": "recurring"}
    connection.execute("UPDATE onceflow.finding SET state = 'accepted'")
    look_at_tables(connection, IMPATIENT)
    assert findings(connection) == {"record events/0/1": "accepted"}
    connection.execute("UPDATE onceflow.quarantine SET code = 'too_deep'")
    look_at_tables(connection, IMPATIENT)
    assert findings(connection) == {"record events/0/1": "open"}, "other facts were not accepted"


def test_patience_is_kept(connection: psycopg.Connection[Any]) -> None:
    connection.execute(RECORD, [1, 1])
    assert look_at_tables(connection, Patience())["quarantined_too_long"] == 0


def test_more_than_one_look_writes_heals_nothing(connection: psycopg.Connection[Any]) -> None:
    connection.execute(RECORD, [1, ROWS_MAX + 5])
    assert look_at_tables(connection, IMPATIENT)["quarantined_too_long"] == ROWS_MAX
    connection.execute("UPDATE onceflow.quarantine SET quarantined_at = now() - interval '1 hour' WHERE \"offset\" > 5")
    look_at_tables(connection, IMPATIENT)
    assert set(findings(connection).values()) == {"open"}
    assert len(findings(connection)) == ROWS_MAX + 5


def command(road: ReconcilerRoad, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "onceflow", "findings", *arguments],
        env=road._environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def test_a_person_sees_findings_and_accepts_them(road: ReconcilerRoad) -> None:
    with psycopg.connect(road.database_url, autocommit=True) as opened:
        opened.execute(RECORD, [1, 2])
        look_at_tables(opened, IMPATIENT)
    listed = [json.loads(line) for line in command(road, "list", "--json").stdout.splitlines()]
    assert [row["subject"] for row in listed] == ["record events/0/2", "record events/0/1"]
    number = str(listed[0]["id"])
    page = command(road, "show", number).stdout
    assert "a record about which nobody decides" in page
    assert "first: onceflow quarantine list --groups" in page
    command(road, "accept", number, "--reason", "known")
    assert len(command(road, "list", "--json").stdout.splitlines()) == 2, "a dry run"
    command(road, "accept", number, "--reason", "known", "--execute")
    assert len(command(road, "list", "--json").stdout.splitlines()) == 1
    assert len(command(road, "list", "--all", "--json").stdout.splitlines()) == 2
    command(road, "accept", number, "--reason", "known", "--execute", status=1)
    assert command(road, "show", "999", status=1).stderr.count("finding_missing") == 1
    command(road, "list", "--kind", "nonsense", status=2)
    command(road, "accept", number, "--reason", " ", status=2)
    assert road.rows("SELECT action, reason FROM onceflow.audit") == [{"action": "finding_accept", "reason": "known"}]
