"""The proxy is tried with a real client before it judges anybody: each cut does what it says, in each protocol form."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.faults.proxy import Cut, PostgresProxy

FIRED_SECONDS = 30.0


def of_interest(statement: str) -> bool:
    return "probe" in statement


@pytest.fixture
def proxy(empty_database: str) -> Iterator[PostgresProxy]:
    with psycopg.connect(empty_database) as connection:
        connection.execute("CREATE TABLE probe (n int)")
    parts = conninfo_to_dict(empty_database)
    with PostgresProxy(host=str(parts["host"]), port=int(str(parts["port"])), interesting=of_interest) as running:
        yield running


def through(proxy: PostgresProxy, database_url: str) -> str:
    return make_conninfo(database_url, host="127.0.0.1", port=proxy.port)


def rows(database_url: str) -> int:
    with psycopg.connect(database_url) as connection:
        row = connection.execute("SELECT count(*) FROM probe").fetchone()
        assert row is not None
        return int(row[0])


def insert_plainly(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    connection.execute("INSERT INTO probe VALUES (1)")
    connection.commit()


def insert_in_pipeline(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    with connection.pipeline():
        connection.execute("INSERT INTO probe VALUES (1)", prepare=True)
        connection.execute("COMMIT", prepare=True)


FORMS = {"simple": insert_plainly, "pipelined": insert_in_pipeline}


@pytest.mark.parametrize("form", FORMS)
def test_unarmed_proxy_only_forwards(form: str, proxy: PostgresProxy, empty_database: str) -> None:
    with psycopg.connect(through(proxy, empty_database)) as connection:
        for _ in range(10):
            FORMS[form](connection)
    assert rows(empty_database) == 10
    assert proxy.commits_seen == 10


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("before", [0, 10])
def test_answer_lost_means_committed(form: str, before: int, proxy: PostgresProxy, empty_database: str) -> None:
    """After ten times the client has prepared its COMMIT, so that only Bind and Execute are on the wire."""
    with psycopg.connect(through(proxy, empty_database)) as connection:
        for _ in range(before):
            FORMS[form](connection)
        proxy.arm(Cut.ANSWER)
        with pytest.raises(psycopg.OperationalError):
            FORMS[form](connection)
    assert proxy.fired.wait(FIRED_SECONDS)
    assert proxy.tags_dropped == ["COMMIT"]
    assert rows(empty_database) == before + 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("before", [0, 10])
def test_commit_lost_means_not_committed(form: str, before: int, proxy: PostgresProxy, empty_database: str) -> None:
    with psycopg.connect(through(proxy, empty_database)) as connection:
        for _ in range(before):
            FORMS[form](connection)
        proxy.arm(Cut.COMMIT)
        with pytest.raises(psycopg.OperationalError):
            FORMS[form](connection)
    assert proxy.fired.wait(FIRED_SECONDS)
    assert proxy.tags_dropped == []
    assert rows(empty_database) == before


def test_transaction_of_no_interest_passes(proxy: PostgresProxy, empty_database: str) -> None:
    proxy.arm(Cut.COMMIT)
    with psycopg.connect(through(proxy, empty_database)) as connection:
        connection.execute("SELECT 1")
        connection.commit()
        connection.execute("INSERT INTO probe VALUES (1)")
        connection.rollback()
        connection.execute("SELECT 2")
        connection.commit()
    assert not proxy.fired.is_set()
