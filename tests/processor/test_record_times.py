"""Row 41 of the catalogue of bad input: the time of a record says nothing; a good record of any time is processed."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.processor.conftest import event_body, record
from tests.processor.inputs.foreign_records import WRAP
from tests.processor.inputs.test_roads import Bus, invoice_paid, seen
from tests.processor.processor_process import CREATED, MakeRoad, Road, end, wait_until

ANY_TIME = {"message.timestamp.before.max.ms": str(2**63 - 1), "message.timestamp.after.max.ms": str(2**63 - 1)}
"""Kafka refuses records from the future by itself unless it is told not to."""
TIMES_MS = {"year1": -62_135_596_800_000, "epoch": 1, "none": -1, "year9999": 253_402_300_799_000}


def allow_any_time(road: Road) -> None:
    wanted = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in ANY_TIME.items()]
    topic = ConfigResource(ResourceType.TOPIC, road.events, incremental_configs=wanted)
    admin = AdminClient({"bootstrap.servers": road.bootstrap})
    admin.incremental_alter_configs([topic])[topic].result(20)


def test_a_good_record_of_any_time_is_processed(make_road: MakeRoad) -> None:
    """Of the bridge and of a bus, each between records of today; what is kept of a bad one has its time or none."""
    road = make_road(partitions=1)
    bus = Bus(road, ("stripe-json", "stripe-signature"), config=ANY_TIME)
    allow_any_time(road)
    refused: list[KafkaError] = []

    def report(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer({"bootstrap.servers": road.bootstrap, "on_delivery": report})

    def put(topic: str, value: bytes, headers: Any, *, time_ms: int, key: bytes | None = None) -> None:
        producer.produce(topic, value, key, headers=headers, timestamp=time_ms)

    road.publish(["evt_before"])
    for name, time_ms in TIMES_MS.items():
        subject = {"id": f"in_{name}", "object": "invoice", "amount_paid": 1}
        body = event_body(f"evt_ours_{name}", "invoice.paid", subject, created=CREATED)
        made = record(body, 0, topic=road.events, deployment=road.deployment)
        put(road.events, made.value or b"", made.headers, time_ms=time_ms, key=made.key)
        value, headers = WRAP["stripe-json"](invoice_paid(f"evt_bus_{name}"))
        for each in (value, value + b" "):
            put(bus.topics[0], each, headers, time_ms=time_ms)
    assert producer.flush(20) == 0
    assert refused == []
    with road.processor(**bus.settings) as running:
        wait_until(lambda: bus.passed() == 1 + 3 * len(TIMES_MS), "all are passed")
        road.publish(["evt_after"])
        road.wait_for_events(2 + 2 * len(TIMES_MS))
        assert end(running) == 0
    good = [f"evt_{road_name}_{name}" for road_name in ("ours", "bus") for name in TIMES_MS]
    assert seen(road) == sorted(["evt_before", "evt_after", *good])
    assert set(road.states().values()) == {"processed"}
    assert bus.quarantined(bus.topics[0]) == ["unauthenticated"] * len(TIMES_MS)
