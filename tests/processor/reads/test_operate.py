"""Reads by ``onceflow operate`` as a process: killed in the middle, and put to sleep past its lease."""

from __future__ import annotations

import json
import signal
from typing import Any, cast

import psycopg
import pytest

from onceflow_schemas.object_reads import ReadKind, ReadNeed
from onceflow_schemas.sql import queries
from onceflow_simulator import Simulator
from tests.processor.operations.operator_process import ACCOUNT, OperationsRoad, SmallStripe
from tests.processor.processor_process import wait_until
from tests.processor.reads.stripe_side import client_of

SLOW_MS = 4_000
CALL_SECONDS = {"ONCEFLOW_OPERATIONS_CALL_SECONDS_MAX": "6"}


def ask(road: OperationsRoad, customer: str) -> None:
    need = ReadNeed(ACCOUNT, "test", ReadKind.OBJECT, customer, f"/v1/customers/{customer}", None)
    with psycopg.connect(road.database_url) as connection:
        given = {
            "accounts": [need.account],
            "modes": [need.mode],
            "kinds": [need.kind.value],
            "object_ids": [need.object_id],
            "paths": [need.path],
            "api_versions": [need.api_version],
        }
        connection.execute(queries("object_reads")["ask"], given)


def read_row(road: OperationsRoad) -> dict[str, Any]:
    [row] = road.rows("SELECT state, result, body, fence, lease_owner FROM onceflow.object_read")
    return row


def stripe_of(simulator: Simulator) -> SmallStripe:
    """The simulator in the place of the small Stripe: only its address is asked for."""
    return cast("SmallStripe", simulator)


@pytest.mark.long
def test_killed_while_it_reads_another_reads_after_the_lease(road: OperationsRoad, simulator: Simulator) -> None:
    customer = client_of(simulator).v1.customers.create({"email": "a@example.com"}).id
    path = f"/v1/customers/{customer}"
    simulator.set(latency_ms=SLOW_MS)
    ask(road, customer)
    with road.worker(stripe_of(simulator), **CALL_SECONDS) as (first, _):
        wait_until(lambda: simulator.reads(path) == 1, "the first one reads")
        first.send_signal(signal.SIGKILL)
        first.wait(10)
        assert read_row(road)["state"] == "asked"
        simulator.set(latency_ms=0)
        with road.worker(stripe_of(simulator), **CALL_SECONDS):
            wait_until(lambda: read_row(road)["state"] == "read", "the second one has read, after the lease")
    assert simulator.reads(path) == 2
    assert read_row(road)["fence"] == 2


@pytest.mark.long
def test_one_that_slept_past_its_lease_writes_nothing(road: OperationsRoad, simulator: Simulator) -> None:
    client = client_of(simulator)
    customer = client.v1.customers.create({"email": "old@example.com"}).id
    path = f"/v1/customers/{customer}"
    simulator.set(latency_ms=SLOW_MS)
    ask(road, customer)
    with road.worker(stripe_of(simulator), **CALL_SECONDS) as (zombie, log):
        wait_until(lambda: simulator.reads(path) == 1, "the first one reads")
        zombie.send_signal(signal.SIGSTOP)
        simulator.set(latency_ms=0)
        with road.worker(stripe_of(simulator), **CALL_SECONDS):
            wait_until(lambda: simulator.reads(path) == 2, "the lease is over, and another reads")
            wait_until(lambda: read_row(road)["state"] == "read", "the second one has read")
            before = read_row(road)
            client.v1.customers.update(customer, {"email": "newest@example.com"})
            zombie.send_signal(signal.SIGCONT)
            wait_until(lambda: "late_read_refused" in log.read_text(), "the late answer is refused")
    assert read_row(road) == before
    assert json.loads(before["body"])["email"] == "old@example.com"
