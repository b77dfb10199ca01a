"""Lines that are written in few steps say the same as rows that are looked at closely."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from onceflow_reconciler.verify.event_lines import event_line, outcome_line
from onceflow_reconciler.verify.seen_rows import event_row, outcome_row
from onceflow_schemas.sql import queries
from tests.processor.conftest import RULES, event_body, record

_SQL = queries("verify_tables")
SOURCE = "urn:onceflow:test-deployment"
OUTCOME: list[tuple[str, bytes | None]] = [
    ("ce_specversion", b"1.0"),
    ("ce_id", b"8f3c7e2a-0000-5000-8000-000000000001"),
    ("ce_source", SOURCE.encode()),
    ("ce_type", b"invoice.paid"),
    ("ce_subject", b"in_1"),
    ("ce_time", b"2026-01-01T00:00:00.000001Z"),
    ("onceflow_lane", b"3"),
    ("onceflow_sequence", b"17"),
    ("onceflow_cause", b"event:acct_1/test/evt_1"),
    ("onceflow_outcome_id", b"8f3c7e2a-0000-5000-8000-000000000001"),
    ("onceflow_revision", b"1"),
]


@pytest.fixture
def connection(fresh_database: str) -> Any:
    with psycopg.connect(fresh_database) as opened:
        opened.execute(_SQL["make_seen_event"])
        opened.execute(_SQL["make_seen_outcome"])
        yield opened


def rows(connection: psycopg.Connection[Any], table: str) -> list[Any]:
    return connection.execute(f"SELECT * FROM {table}".encode()).fetchall()


def test_a_record_of_the_bridge_is_the_same_either_way(connection: psycopg.Connection[Any]) -> None:
    body = event_body("evt_1", "invoice.paid", {"id": "in_1", "object": "invoice"})
    made = record(body, 7)
    line = event_line(b"topic+id\t0", 7, made.timestamp_ms, headers=made.headers, value=body)
    assert line is not None
    with connection.cursor().copy(_SQL["copy_events"]) as copy:
        copy.write(line)
        copy.write_row(event_row(made, topic_id="topic+id", rules=RULES, now=datetime.now(UTC), passed=True))
    first, second = rows(connection, "seen_event")
    assert first == second
    assert hashlib.sha256(body).digest() in first


def test_an_outcome_is_the_same_either_way(connection: psycopg.Connection[Any]) -> None:
    found = outcome_line(b"3", 21, key=b"in_1", value=b"{}", headers=OUTCOME, source=SOURCE.encode())
    assert found is not None
    assert found[0] == 17
    with connection.cursor().copy(_SQL["copy_outcomes"]) as copy:
        copy.write(found[1])
        copy.write_row(outcome_row(3, 21, key=b"in_1", value=b"{}", headers=OUTCOME, source=SOURCE))
    first, second = rows(connection, "seen_outcome")
    assert first == second


ODD: Sequence[tuple[str, bytes | None]] = [
    ("ce_source", None),
    ("ce_source", b"urn:stripe:acct_1:prod"),
    ("ce_id", b"evt\t1"),
    ("ce_id", b"evt\\N"),
    ("ce_id", b""),
    ("ce_time", b"yesterday"),
    ("ce_time", "2026-01-01T00:00:00.000000Ä".encode()),
    ("onceflow_received_at", b"a\nb"),
    ("onceflow_endpoint", b"stripe:events"),
]


@pytest.mark.parametrize(("name", "value"), ODD)
def test_what_is_odd_about_a_record_is_looked_at_closely(name: str, value: bytes | None) -> None:
    body = event_body("evt_1", "invoice.paid", {"id": "in_1", "object": "invoice"})
    made = record(body, 7)
    headers = [(each, value if each == name else raw) for each, raw in made.headers]
    assert event_line(b"t\t0", 7, 0, headers=headers, value=body) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ce_source", b"urn:onceflow:other"),
        ("onceflow_lane", b"4"),
        ("ce_subject", b"in_2"),
        ("onceflow_sequence", b"017"),
        ("onceflow_sequence", b"-1"),
        ("onceflow_sequence", b"9" * 19),
        ("onceflow_revision", b"0"),
        ("ce_time", b"2026-01-01"),
        ("onceflow_cause", b"event\t1"),
        ("ce_type", b"a\\b"),
        ("ce_id", None),
    ],
)
def test_what_is_odd_about_an_outcome_is_looked_at_closely(name: str, value: bytes | None) -> None:
    headers = [(each, value if each == name else raw) for each, raw in OUTCOME]
    assert outcome_line(b"3", 1, key=b"in_1", value=b"{}", headers=headers, source=SOURCE.encode()) is None


@pytest.mark.parametrize(
    "more", [("onceflow_refill", b"1"), ("onceflow_withheld", b"too_large"), ("x-own", b"1"), ("ce_id", b"x")]
)
def test_more_headers_than_usual_are_looked_at_closely(more: tuple[str, bytes]) -> None:
    headers = [*OUTCOME, more]
    assert outcome_line(b"3", 1, key=b"in_1", value=b"{}", headers=headers, source=SOURCE.encode()) is None
