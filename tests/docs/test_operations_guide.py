"""What the guide to operations shows for applications does what the page says, on a real database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from tests.docs.test_guides import PYTHON

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "operations.md"


@pytest.fixture
def names() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for block in PYTHON.findall(PAGE.read_text("utf-8")):
        exec(compile(block, str(PAGE), "exec"), found)  # noqa: S102 - the page is ours, and this is its test.
    return found


@pytest.fixture
def shop(fresh_database: str) -> str:
    with psycopg.connect(fresh_database, autocommit=True) as setup:
        setup.execute("CREATE TABLE orders (id text PRIMARY KEY, state text)")
        setup.execute("INSERT INTO orders VALUES ('o-1', 'new')")
        setup.execute(
            "INSERT INTO onceflow.deployment (id, accounts, mode, system_id, timeline)"
            " VALUES ('d', '{acct_1}', 'test', 's', 1)"
        )
    return fresh_database


def written(url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT effect, subject, cause FROM onceflow.operation").fetchall()


def test_an_order_is_confirmed_and_its_charge_asked_for_in_one_commit(names: dict[str, Any], shop: str) -> None:
    with psycopg.connect(shop) as connection:
        names["confirm_order"](connection, 1)
    assert written(shop) == [("charge_order", "o-1", "app:order:o-1:confirm")]
    with psycopg.connect(shop) as connection:
        assert connection.execute("SELECT state FROM orders").fetchall() == [("confirmed",)]
        assert connection.execute("SELECT key FROM onceflow.outcome_staged").fetchall() == [("o-1",)]


def test_a_session_of_sqlalchemy_commits(names: dict[str, Any], shop: str) -> None:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(shop), poolclass=NullPool)
    with Session(engine) as session:
        names["confirm_with_sqlalchemy"](session, 1)
    engine.dispose()
    assert written(shop) == [("give_back", "o-1", "app:order:o-1:confirm")]
