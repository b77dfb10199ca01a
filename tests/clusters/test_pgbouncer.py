"""PgBouncer in transaction mode: no session state is relied on, and prepared statements that cannot work are named."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from onceflow import attach
from tests.clusters.installation import Installation
from tests.clusters.pgbouncer import PgBouncer
from tests.processor.operations.operator_process import SmallStripe
from tests.processor.operations.sample_effects import refund
from tests.waiting import wait_until

EVENTS = 300
NAMED_SECONDS = 40.0
ENDED_BY_SETTINGS = 3
REQUESTS = 50
COUNTED = (
    "SELECT (SELECT count(*) FROM onceflow.operation WHERE state = 'succeeded'),"
    " (SELECT count(*) FROM onceflow.outcome WHERE type = 'order.paid')"
)


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
        assert set(place.wait_for_states(ids).values()) == {"processed"}
        assert sorted(place.published(EVENTS)) == sorted(ids)
        with psycopg.connect(place.database_url) as owner:
            seen = owner.execute("SELECT event_id FROM public.seen").fetchall()
            guards = owner.execute("SELECT count(*) FROM onceflow.batch_guard").fetchone()
        assert sorted(event_id for (event_id,) in seen) == sorted(ids)
        assert guards == (0,)
        for part in parts:
            told = {line.get("event") for line in part.lines()}
            assert not told & {"database_away", "relay_term_ended", "fenced"}, part.text()


def test_operations_of_an_application_behind_it_are_carried_out_without_wake_ups(
    place: Installation, tmp_path: Path
) -> None:
    """R53: each statement fifty times over two connections; LISTEN does not pass a pooler, and nothing relies on it."""
    with PgBouncer(tmp_path, place.database_url, server_connections=2) as pooler, ExitStack() as stack:
        stripe = stack.enter_context(SmallStripe())
        pooled = {
            "DATABASE_URL": pooler.url,
            "ONCEFLOW_DATABASE_PREPARED": "false",
            "STRIPE_API_KEY": "sk_test_1",
            "ONCEFLOW_STRIPE_API_BASE": stripe.url,
            "ONCEFLOW_PROCESSOR_HANDLERS": "tests.processor.operations.sample_effects:handlers",
        }
        place.set_up(**pooled)
        stack.enter_context(place.running("process", **pooled))
        operator = stack.enter_context(place.running("operate", **pooled))
        for number in range(REQUESTS):
            with psycopg.connect(pooler.url, prepare_threshold=None) as shop:
                tx = attach(shop, cause=f"order-{number}")
                tx.request(refund, subject=f"order-{number}", charge="ch_1", amount=500)
                tx.outcome("order.paid", key=f"order-{number}", data={})

        def counted() -> tuple[int, ...] | None:
            with psycopg.connect(place.database_url) as owner:
                return owner.execute(COUNTED).fetchone()

        wait_until(lambda: counted() == (REQUESTS, REQUESTS), within_seconds=NAMED_SECONDS, why=operator.text())
        assert len(stripe.effects) == sum(stripe.effects.values()) == REQUESTS


@pytest.mark.long
def test_prepared_statements_behind_it_are_named_as_the_fault_and_cost_no_event(
    place: Installation, tmp_path: Path
) -> None:
    with PgBouncer(tmp_path, place.database_url, server_connections=1) as pooler, ExitStack() as stack:
        pooled = {"DATABASE_URL": pooler.url, "ONCEFLOW_DATABASE_PREPARED": "true"}
        place.set_up(**pooled)
        bridge = stack.enter_context(place.running("bridge"))
        relay = stack.enter_context(place.running("relay", **pooled))
        processors = [stack.enter_context(place.running("process", **pooled)) for _ in range(2)]
        sent: list[str] = []

        def ended() -> bool:
            """Each event makes all parts run the same statements once more, until the client prepares them."""
            sent.append(f"evt_{len(sent)}")
            place.send(bridge, sent[-1:])
            return any(part.process.poll() is not None for part in processors)

        wait_until(ended, within_seconds=NAMED_SECONDS, why="no processor ends for the fault")
        for part in processors:
            if part.process.poll() is not None:
                assert part.process.poll() == ENDED_BY_SETTINGS, part.text()
                assert "set database.prepared to false" in part.text()
        assert relay.process.poll() is None, "a relay at work waits until it is changed"
    with place.running("process", ONCEFLOW_DATABASE_PREPARED="false"):
        assert set(place.wait_for_states(sent).values()) == {"processed"}
