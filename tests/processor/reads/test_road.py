"""The whole way as processes: events in Kafka, a tie parked by the processor, read by ``operate``, run by the redrive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import Producer

from onceflow_simulator import Simulator
from tests.processor.conftest import event_body, record
from tests.processor.operations.operator_process import OperationsRoad, SmallStripe
from tests.processor.processor_process import wait_until
from tests.processor.reads.stripe_side import client_of

HANDLERS = {"ONCEFLOW_PROCESSOR_HANDLERS": "tests.processor.reads.read_handlers:handlers"}
VERSION = "2026-10-28.endive"


@pytest.fixture
def road(kafka_bootstrap: str, fresh_database: str, tmp_path: Path) -> OperationsRoad:
    made = OperationsRoad(kafka_bootstrap, fresh_database, tmp_path)
    made.prepare()
    return made


def test_a_tie_is_read_once_and_handled_once(road: OperationsRoad, simulator: Simulator) -> None:
    customer = client_of(simulator).v1.customers.create({"name": "now"}).id
    producer = Producer({"bootstrap.servers": road.bootstrap, "partitioner": "murmur2_random"})
    for number in range(20):
        subject = {"id": customer, "object": "customer", "name": f"name {number}"}
        body = event_body(f"evt_{number}", "customer.updated", subject, api_version=VERSION)
        made = record(body, 0, topic=road.events, deployment=road.deployment)
        road.produce(producer, made.key, made.value, headers=made.headers)
    assert producer.flush(20) == 0
    with road.processor(ONCEFLOW_PROCESSOR_READ_OBJECTS="true", **HANDLERS):
        road.wait_for_events(20)
        [key] = road.rows("SELECT reason FROM onceflow.parked_key")
        assert key["reason"] == "reading", "without workers it waits, and says so"
        with road.worker(cast("SmallStripe", simulator), **HANDLERS):
            wait_until(lambda: set(road.states().values()) == {"processed"}, "all events are processed")
    assert simulator.reads(f"/v1/customers/{customer}") == 1
    told = [json.loads(row["value"])["name"] for row in road.rows("SELECT value FROM onceflow.outcome ORDER BY seq")]
    assert told == ["name 0", "now"]
    assert road.rows("SELECT FROM onceflow.parked_key") == []
