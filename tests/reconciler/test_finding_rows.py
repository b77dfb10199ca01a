"""Findings that were healed long ago cost a look nothing."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from onceflow_schemas.sql import queries

HEALED = 20_000


@pytest.mark.parametrize(
    ("query", "given", "index"),
    [
        ("open_of_kinds", {"kinds": ["missed_event", "lane_gap"]}, "finding_not_healed"),
        ("missed_types", {"account": "acct_1", "mode": "test"}, "finding_missed"),
    ],
)
def test_a_look_goes_past_what_is_healed(fresh_database: str, query: str, given: dict[str, Any], index: str) -> None:
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO onceflow.finding (kind, subject, account, mode, state, facts, last_seen_at)"
            " SELECT 'missed_event', 'event ' || number, 'acct_1', 'test', 'healed', '{\"type\": \"a.b\"}',"
            " now() - interval '9 days' FROM generate_series(1, %s) AS number",
            [HEALED],
        )
        connection.execute("ANALYZE onceflow.finding")
        plan = connection.execute(b"EXPLAIN " + queries("reconcile")[query], given).fetchall()
        assert f"using {index}" in "\n".join(row[0] for row in plan) or f"on {index}" in str(plan), plan
