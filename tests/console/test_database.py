"""Connections of commands: what goes wrong is told without the address."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from onceflow.database import connect, session
from onceflow_schemas.failure import Failure, Misconfigured, Unavailable


def refused(url: str) -> Failure:
    with pytest.raises(Failure) as error:
        connect(url, role="test")
    assert "CANARY" not in f"{error.value} {error.value.hint} {error.value.__cause__}"
    return error.value


def test_a_server_that_is_away() -> None:
    failure = refused("postgresql://u:CANARY@127.0.0.1:9/db")
    assert isinstance(failure, Unavailable)
    assert failure.code == "database_unavailable"
    assert "Connection refused" in failure.message


def test_a_wrong_password(database_url: str) -> None:
    failure = refused(make_conninfo(database_url, password="CANARY"))
    assert failure.code == "database_unavailable"
    assert "password authentication failed" in failure.message


def test_an_address_that_nobody_can_read() -> None:
    failure = refused("postgres//u:CANARY@h/db")
    assert isinstance(failure, Misconfigured)
    assert failure.code == "settings_invalid"


def test_a_role_is_visible_to_the_administrator(database_url: str) -> None:
    with session(database_url, role="test") as connection:
        assert connection.execute("SHOW application_name").fetchone() == ("onceflow-test",)
    named = make_conninfo(database_url, application_name="mine")
    with session(named, role="test") as connection:
        assert connection.execute("SHOW application_name").fetchone() == ("mine",)


def test_what_the_server_refuses_is_told_in_its_first_line(database_url: str) -> None:
    with pytest.raises(Unavailable) as error, session(database_url, role="test") as connection:
        connection.execute("SELECT * FROM nowhere")
    assert error.value.message == 'PostgreSQL does not answer or refuses: relation "nowhere" does not exist'
    with pytest.raises(Unavailable), session(database_url, role="test") as connection:
        raise psycopg.OperationalError
