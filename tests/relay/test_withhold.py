"""Only the outcome that a stopped lane stands in front of can be withheld."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from onceflow_processor.relay.withhold import withhold
from tests.relay.lanes import add_rows


@pytest.fixture
def database(fresh_database: str) -> str:
    with psycopg.connect(fresh_database) as connection:
        connection.execute("INSERT INTO onceflow.lane (lane, topic_id) VALUES (0, 'T'), (1, 'T')")
        add_rows(connection, 0, 5)
        add_rows(connection, 1, 5)
        connection.execute("UPDATE onceflow.lane SET published_seq = 2")
        connection.execute("UPDATE onceflow.lane SET state = 'stopped:unpublishable', detail = 'd' WHERE lane = 0")
    return fresh_database


def table(database: str) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    with psycopg.connect(database) as connection:
        lanes = connection.execute("SELECT lane, state, detail FROM onceflow.lane ORDER BY lane").fetchall()
        withheld = connection.execute("SELECT lane, seq, withheld FROM onceflow.outcome WHERE withheld IS NOT NULL")
        return lanes, withheld.fetchall()


@pytest.mark.parametrize("autocommit", [True, False])
def test_the_outcome_is_left_out_and_the_lane_opens(database: str, *, autocommit: bool) -> None:
    with psycopg.connect(database, autocommit=autocommit) as connection:
        assert withhold(connection, 0, seq=3, code="too_large") == "withheld"
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        assert withhold(connection, 0, seq=3, code="too_large") == "lane_not_stopped", "once"
    assert table(database) == ([(0, "ok", ""), (1, "ok", "")], [(0, 3, "too_large")])


def test_nothing_else_is_changed(database: str) -> None:
    before = table(database)
    with psycopg.connect(database, autocommit=True) as connection:
        assert withhold(connection, 0, seq=2, code="too_large") == "other_sequence", "published"
        assert withhold(connection, 0, seq=4, code="too_large") == "other_sequence", "not the one"
        assert withhold(connection, 1, seq=3, code="too_large") == "lane_not_stopped"
        assert withhold(connection, 9, seq=3, code="too_large") == "lane_not_stopped"
        for code in ("", "Too_large", "too large", "x" * 65, "too_large\n"):
            with pytest.raises(ValueError):
                withhold(connection, 0, seq=3, code=code)
    assert table(database) == before
