"""What a database must be before the processor trusts it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from onceflow.migrations import migrate
from onceflow_processor.start_check import check_database, safety_faults
from onceflow_schemas.failure import Misconfigured
from tests.processor.operations.looked_up import LOOKED_UP, STILL

SAFE = {"version": 180_004, "fsync": "on", "synchronous_commit": "on", "standby": False}


@pytest.mark.parametrize("level", ["on", "local", "remote_write", "remote_apply"])
def test_a_durable_primary_is_safe(level: str) -> None:
    assert safety_faults({**SAFE, "synchronous_commit": level}) == []


def test_all_faults_are_told_at_once() -> None:
    unsafe = {"version": 140_000, "fsync": "off", "synchronous_commit": "off", "standby": True}
    faults = safety_faults(unsafe)
    assert [fault.split()[0] for fault in faults] == ["PostgreSQL", "fsync", "synchronous_commit", "this"]


@pytest.fixture
def with_lanes(fresh_database: str) -> str:
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        connection.execute("INSERT INTO onceflow.lane (lane, topic_id) VALUES (0, 'x')")
    return fresh_database


def check(url: str, **given: Any) -> tuple[int, frozenset[str]]:
    asked = {"deployment": "d", "accounts": ["acct_1"], "mode": "test", **given}
    with psycopg.connect(url) as connection:
        return check_database(connection, **asked)


def test_the_deployment_is_frozen_at_the_first_start(with_lanes: str) -> None:
    version, accounts = check(with_lanes)
    assert version >= 150_000
    assert accounts == {"acct_1"}
    for other in ({"deployment": "e"}, {"mode": "live"}):
        with pytest.raises(Misconfigured) as caught:
            check(with_lanes, **other)
        assert caught.value.code == "database_other_deployment"


def test_accounts_are_added_and_never_dropped(with_lanes: str) -> None:
    check(with_lanes)
    assert check(with_lanes, accounts=["acct_2"])[1] == {"acct_1", "acct_2"}
    assert check(with_lanes)[1] == {"acct_1", "acct_2"}


def test_a_database_put_back_is_counted_once(with_lanes: str) -> None:
    check(with_lanes)
    with psycopg.connect(with_lanes, autocommit=True) as connection:
        connection.execute(LOOKED_UP.encode())
        check(with_lanes)
        assert connection.execute(STILL.encode()).fetchall() == [("failed",), ("review",), ("unknown",)]
        connection.execute("UPDATE onceflow.deployment SET timeline = timeline + 1")
        check(with_lanes)
        check(with_lanes)
        assert connection.execute("SELECT restores FROM onceflow.deployment").fetchone() == (1,)
        assert connection.execute(STILL.encode()).fetchall() == [("failed",)]


def test_a_database_without_schema_or_lanes_is_refused(empty_database: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        check(empty_database)
    assert caught.value.code == "schema_missing"
    with psycopg.connect(empty_database) as connection:
        migrate(connection)
    with pytest.raises(Misconfigured) as caught:
        check(empty_database)
    assert caught.value.code == "lanes_missing"


@pytest.fixture
def ascii_database(database_url: str) -> Iterator[str]:
    name = f"ascii_{uuid.uuid4().hex[:8]}"
    statement = "CREATE DATABASE {} ENCODING 'SQL_ASCII' LOCALE 'C' LOCALE_PROVIDER libc TEMPLATE template0"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(sql.Identifier(name)))
    yield make_conninfo(database_url, dbname=name)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def test_a_database_of_another_encoding_is_refused(ascii_database: str) -> None:
    with psycopg.connect(ascii_database) as connection, pytest.raises(Misconfigured, match="SQL_ASCII") as caught:
        migrate(connection)
    assert caught.value.code == "database_unsafe"
    with pytest.raises(Misconfigured, match="SQL_ASCII") as caught:
        check(ascii_database)
    assert caught.value.code == "database_unsafe"
