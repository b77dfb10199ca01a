"""A reader of ``onceflow operate`` killed between any two of its steps: the object is read once more at most, and applied once."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, cast

import psycopg
import pytest
from confluent_kafka import Producer

from onceflow_simulator import Simulator
from tests.every_run import mostly_long
from tests.processor.armed import killed_at
from tests.processor.conftest import event_body, record
from tests.processor.operations.operator_process import ACCOUNT, OperationsRoad, SmallStripe
from tests.processor.processor_process import wait_until
from tests.processor.reads.stripe_side import client_of

HANDLERS = {"ONCEFLOW_PROCESSOR_HANDLERS": "tests.processor.reads.read_handlers:handlers"}
VERSION = "2026-10-28.endive"
ONE_A_SECOND = {"ONCEFLOW_OPERATIONS_REQUESTS_PER_SECOND": "1", "ONCEFLOW_OPERATIONS_BURST": "10000"}
CALLS = 100
"""What the account may ask for at first; the burst is out of reach, so that every call that was taken shows."""


def publish_tie(road: OperationsRoad, customer: str) -> None:
    """Three updates of one second: the first is applied, the others need a read."""
    producer = Producer({"bootstrap.servers": road.bootstrap, "partitioner": "murmur2_random"})
    for number in range(3):
        subject = {"id": customer, "object": "customer", "name": f"name {number}"}
        body = event_body(f"evt_{number}", "customer.updated", subject, api_version=VERSION)
        made = record(body, 0, topic=road.events, deployment=road.deployment)
        road.produce(producer, made.key, made.value, headers=made.headers)
    assert producer.flush(20) == 0


def settings_of(simulator: Simulator) -> dict[str, str]:
    return {
        **HANDLERS,
        **ONE_A_SECOND,
        "ONCEFLOW_STRIPE_API_BASE": simulator.url,
        "STRIPE_API_KEY": simulator.api_key,
        "ONCEFLOW_OPERATIONS_CALL_SECONDS_MAX": "6",
        "ONCEFLOW_OPERATIONS_CALLBACK_DEADLINE_SECONDS": "1",
        "ONCEFLOW_OPERATIONS_LEASE_SECONDS": "14",
    }


def change(road: OperationsRoad, query: str) -> None:
    with psycopg.connect(road.database_url, autocommit=True) as connection:
        connection.execute(query.encode())


def read_row(road: OperationsRoad) -> dict[str, Any]:
    [row] = road.rows("SELECT state, result, tries, fence, lease_owner FROM onceflow.object_read")
    return row


def open_budget(road: OperationsRoad, reason: str | None = None) -> datetime:
    """Give the account its calls, paused where a reason is given; return since when it has them."""
    with psycopg.connect(road.database_url) as connection:
        row = connection.execute(
            "INSERT INTO onceflow.account_budget (account, mode, tokens, paused_reason, refusals) VALUES (%s, 'test', %s, %s, %s)"
            " RETURNING refilled_at",
            [ACCOUNT, CALLS, reason, 0 if reason is None else 1],
        ).fetchone()
    assert row is not None
    opened_at: datetime = row[0]
    return opened_at


def calls_taken(road: OperationsRoad, opened_at: datetime) -> int:
    """How many calls the budget has lost since, as it fills up by one in a second."""
    [row] = road.rows(
        "SELECT (%s + extract(epoch FROM refilled_at - %s) - tokens)::float8 AS taken FROM onceflow.account_budget",
        CALLS,
        opened_at,
    )
    taken: float = row["taken"]
    assert abs(taken - round(taken)) < 0.01
    return round(taken)


def pause_of(road: OperationsRoad) -> tuple[bool, str | None]:
    """Whether nothing may be asked of the account now, and why."""
    [row] = road.rows(
        "SELECT coalesce(blocked_until > clock_timestamp(), false) AS blocked, paused_reason FROM onceflow.account_budget"
    )
    return row["blocked"], row["paused_reason"]


@pytest.mark.parametrize(
    ("point", "asked_by_the_dead", "leased_by_the_dead"),
    mostly_long(
        [
            ("reader.before_lease_commit", 0, 0),
            ("reader.before_request", 0, 1),
            ("reader.after_answer", 1, 1),
            ("reader.before_commit", 1, 1),
        ],
        every_run=[("reader.before_lease_commit", 0, 0), ("reader.after_answer", 1, 1)],
    ),
)
def test_killed_there_another_reads_and_it_is_applied_once(
    road: OperationsRoad, simulator: Simulator, point: str, asked_by_the_dead: int, leased_by_the_dead: int
) -> None:
    customer = client_of(simulator).v1.customers.create({"name": "now"}).id
    path = f"/v1/customers/{customer}"
    publish_tie(road, customer)
    with road.processor(ONCEFLOW_PROCESSOR_READ_OBJECTS="true", **HANDLERS):
        road.wait_for_events(3)
        opened_at = open_budget(road)
        killed_at(road, point, command="operate", settings=settings_of(simulator))
        assert simulator.reads(path) == asked_by_the_dead
        assert read_row(road) == {
            "state": "asked",
            "result": None,
            "tries": leased_by_the_dead,
            "fence": leased_by_the_dead,
            "lease_owner": read_row(road)["lease_owner"],
        }
        assert (read_row(road)["lease_owner"] is None) == (leased_by_the_dead == 0)
        assert [row["reason"] for row in road.rows("SELECT reason FROM onceflow.parked_key")] == ["reading"]
        assert calls_taken(road, opened_at) == leased_by_the_dead
        let_the_lease_run_out(road)
        with road.worker(cast("SmallStripe", simulator), **settings_of(simulator)):
            wait_until(lambda: set(road.states().values()) == {"processed"}, "all events are processed")
    assert simulator.reads(path) == asked_by_the_dead + 1
    assert read_row(road) == {
        "state": "read", "result": "whole", "tries": 0, "fence": leased_by_the_dead + 1, "lease_owner": None,
    }  # fmt: skip
    assert calls_taken(road, opened_at) == leased_by_the_dead + 1, "each lease has cost one call, and no more"
    assert pause_of(road) == (False, None)
    told = [json.loads(row["value"])["name"] for row in road.rows("SELECT value FROM onceflow.outcome ORDER BY seq")]
    assert told == ["name 0", "now"], "the state that was read is applied once"
    assert [row["event_id"] for row in road.rows("SELECT event_id FROM public.seen ORDER BY ctid")] == [
        "evt_0",
        "evt_1",
    ]
    assert road.rows("SELECT FROM onceflow.parked_key") == []


def let_the_lease_run_out(road: OperationsRoad) -> None:
    """As if its time had passed; that it is waited for is shown elsewhere."""
    change(
        road,
        "UPDATE onceflow.object_read SET lease_until = clock_timestamp(), due_at = clock_timestamp() WHERE lease_owner IS NOT NULL",
    )


@pytest.mark.long
def test_the_probe_of_a_paused_account_that_died_is_followed_by_another(
    road: OperationsRoad, simulator: Simulator
) -> None:
    """A paused account gets one call at a time; a worker that dies with it must not keep the account closed."""
    customer = client_of(simulator).v1.customers.create({"name": "now"}).id
    path = f"/v1/customers/{customer}"
    publish_tie(road, customer)
    with road.processor(ONCEFLOW_PROCESSOR_READ_OBJECTS="true", **HANDLERS):
        road.wait_for_events(3)
        opened_at = open_budget(road, "the key is refused")
        killed_at(road, "reader.before_request", command="operate", settings=settings_of(simulator))
        assert pause_of(road) == (True, "the key is refused")
        with road.worker(cast("SmallStripe", simulator), **settings_of(simulator)):
            wait_until(
                lambda: set(road.states().values()) == {"processed"}, "all events are processed, after the lease"
            )
    assert simulator.reads(path) == 1
    assert calls_taken(road, opened_at) == 2
    assert pause_of(road) == (False, None)
