"""The whole way as processes: events in Kafka, a tie parked by the processor, read by ``operate``, run by the redrive."""

from __future__ import annotations

import json
from typing import Any, cast

import psycopg
import pytest
from confluent_kafka import Producer

from onceflow_simulator import Simulator
from tests.processor.conftest import event_body, record
from tests.processor.inputs.test_roads import Bus
from tests.processor.operations.operator_process import OperationsRoad, SmallStripe
from tests.processor.processor_process import wait_until
from tests.processor.reads.stripe_side import client_of, long_invoice, thin_events
from tests.processor.replay.replaying import replayed

HANDLERS = {"ONCEFLOW_PROCESSOR_HANDLERS": "tests.processor.reads.read_handlers:handlers"}
VERSION = "2026-10-28.endive"


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


@pytest.mark.parametrize(("name", "trust"), [("stripe-json", "stripe-signature"), ("eventbridge", "transport")])
def test_a_thin_event_of_a_bus_is_fetched_and_handled_once(
    road: OperationsRoad, simulator: Simulator, name: str, trust: str
) -> None:
    """Published twice; the identity that is fetched by is the body's, not that of the wrapping."""
    client_of(simulator).v1.customers.create({"name": "then"})
    [thin] = thin_events(simulator)
    thin_id = json.loads(thin)["id"]
    bus = Bus(road, (name, trust))
    for _ in range(2):
        bus.publish(thin)
    bus.flush()
    settings: dict[str, Any] = {"ONCEFLOW_PROCESSOR_READ_OBJECTS": "true", **bus.settings, **HANDLERS}
    with road.processor(**settings), road.worker(cast("SmallStripe", simulator), **bus.settings, **HANDLERS):
        wait_until(lambda: bus.passed() == 2, "both records are passed")
        wait_until(lambda: road.states() == {thin_id: "processed"}, "the event is processed")
    told = road.rows("SELECT type, convert_from(value, 'UTF8') AS value FROM onceflow.outcome")
    assert [(row["type"], json.loads(row["value"])) for row in told] == [("customer.told", {"name": "then"})]
    assert simulator.reads(f"/v2/core/events/{thin_id}") == 1
    assert road.rows("SELECT FROM onceflow.quarantine") == road.rows("SELECT FROM onceflow.parked_key") == []


def test_what_was_read_for_an_event_is_given_again_when_it_is_rerun(road: OperationsRoad, simulator: Simulator) -> None:
    """A thin event and one with cut-off lines: their records alone do not say what the handlers met."""
    stripe = client_of(simulator)
    stripe.v1.customers.create({"name": "then"})
    [thin] = thin_events(simulator)
    invoice = long_invoice(stripe, lines=12)
    lines = {"object": "list", "has_more": True, "data": [], "url": f"/v1/invoices/{invoice.id}/lines"}
    subject = {"id": invoice.id, "object": "invoice", "lines": lines}
    producer = Producer({"bootstrap.servers": road.bootstrap})
    for body in (thin, event_body("evt_paid", "invoice.paid", subject, api_version=VERSION)):
        made = record(body, 0, topic=road.events, deployment=road.deployment)
        road.produce(producer, made.key, made.value, headers=made.headers)
    assert producer.flush(20) == 0
    settings: dict[str, Any] = {"ONCEFLOW_PROCESSOR_READ_OBJECTS": "true", **HANDLERS}
    with road.processor(**settings), road.worker(cast("SmallStripe", simulator), **HANDLERS):
        wait_until(lambda: list(road.states().values()) == ["processed"] * 2, "both events are processed")
    told = road.rows("SELECT type, convert_from(value, 'UTF8') AS value FROM onceflow.outcome ORDER BY type")
    assert [(row["type"], json.loads(row["value"])) for row in told] == [
        ("customer.told", {"name": "then"}),
        ("invoice.lines", {"lines": 12}),
    ]
    assert replayed(road, "--rerun", **settings)["done"] == {"rerun": 2, "unchanged": 2}
    with psycopg.connect(road.database_url) as later:
        later.execute("UPDATE onceflow.object_read SET read_at = clock_timestamp() WHERE kind = 'lines'")
    answer = replayed(road, "--rerun", **settings)
    assert answer["done"] == {"rerun": 2, "unchanged": 1, "failed": 1}
    assert [(line["event"].rpartition("/")[2], line["code"]) for line in answer["found"]] == [("evt_paid", "reading")]
