"""PgBouncer in transaction mode: no session state is relied on, and prepared statements that cannot work are named."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from tests.clusters.installation import Installation
from tests.clusters.pgbouncer import PgBouncer
from tests.producer.bridge_process import wait_until

EVENTS = 300
NAMED_SECONDS = 40.0


@pytest.fixture
def place(tmp_path: Path, kafka_bootstrap: str, module_database: str) -> Installation:
    made = Installation(tmp_path, {"bootstrap.servers": kafka_bootstrap}, module_database)
    with psycopg.connect(module_database, autocommit=True) as owner:
        owner.execute("DROP SCHEMA IF EXISTS onceflow CASCADE")
        owner.execute("DROP TABLE IF EXISTS public.seen")
    return made


def test_nothing_is_lost_or_doubled_behind_it(place: Installation, tmp_path: Path) -> None:
    ids = [f"evt_{number}" for number in range(EVENTS)]
    with PgBouncer(tmp_path, place.database_url) as pooler, ExitStack() as stack:
        pooled = {"DATABASE_URL": pooler.url, "ONCEFLOW_DATABASE_PREPARED": "false"}
        place.set_up(**pooled)
        bridge = stack.enter_context(place.running("bridge"))
        parts = [stack.enter_context(place.running(command, **pooled)) for command in ("process", "process", "relay")]
        place.send(bridge, ids)
        assert set(place.wait_for_states(EVENTS).values()) == {"processed"}
        assert sorted(place.published(EVENTS)) == sorted(ids)
        with psycopg.connect(place.database_url) as owner:
            seen = owner.execute("SELECT event_id FROM public.seen").fetchall()
            guards = owner.execute("SELECT count(*) FROM onceflow.batch_guard").fetchone()
        assert sorted(event_id for (event_id,) in seen) == sorted(ids)
        assert guards == (0,)
        for part in parts:
            told = {line.get("event") for line in part.lines()}
            assert not told & {"database_away", "relay_term_ended", "fenced"}, part.text()


def test_prepared_statements_behind_it_are_named_as_the_fault_and_cost_no_event(
    place: Installation, tmp_path: Path
) -> None:
    with PgBouncer(tmp_path, place.database_url, server_connections=1) as pooler, ExitStack() as stack:
        pooled = {"DATABASE_URL": pooler.url, "ONCEFLOW_DATABASE_PREPARED": "true"}
        place.set_up(**pooled)
        bridge = stack.enter_context(place.running("bridge"))
        relay = stack.enter_context(place.running("relay", **pooled))
        processor = stack.enter_context(place.running("process", **pooled))
        sent: list[str] = []

        def named() -> bool:
            """Each event makes both parts run the same statements once more, until the client prepares them."""
            sent.append(f"evt_{len(sent)}")
            place.send(bridge, sent[-1:])
            return any("set database.prepared to false" in part.text() for part in (relay, processor))

        wait_until(named, within_seconds=NAMED_SECONDS, why="nobody names the fault")
    with place.running("process", ONCEFLOW_DATABASE_PREPARED="false"):
        assert set(place.wait_for_states(len(sent)).values()) == {"processed"}
