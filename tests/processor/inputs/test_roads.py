"""Foreign topics through a real Kafka and a real PostgreSQL: each format with each trust rule, and several at once."""

from __future__ import annotations

import json
import time
from typing import Any, cast

import pytest
from confluent_kafka import Producer

from tests.conftest import create_topic
from tests.processor.conftest import ACCOUNT, event_body
from tests.processor.inputs.foreign_records import ROADS, SECRET, WRAP, Headers
from tests.processor.processor_process import MakeRoad, Road, end, wait_until

OTHER_ACCOUNT = "acct_other"
CREATED = int(time.time())
"""Repeats of an event say the same time."""


class Bus:
    """Topics that others write, beside the bridge's own."""

    def __init__(self, road: Road, *roads: tuple[str, str], config: dict[str, str] | None = None, **extra: Any) -> None:
        """One topic for each (format, trust); ``extra`` goes into each table."""
        self.road = road
        self.names = [name for name, _ in roads]
        self.topics = [create_topic(road.bootstrap, prefix="bus", partitions=2, config=config) for _ in roads]
        tables: list[dict[str, Any]] = [{"topic": road.events}]
        for topic, (name, trust) in zip(self.topics, roads, strict=True):
            secrets = {"secrets": [f"endpoint-1={SECRET}"]} if trust == "stripe-signature" else {}
            tables.append({"topic": topic, "format": name, "trust": trust, **secrets, **extra})
        self.settings = {"ONCEFLOW_INPUTS": json.dumps(tables)}
        self.producer = Producer({"bootstrap.servers": road.bootstrap, "message.max.bytes": 2_000_000})

    def put(self, value: bytes | None, headers: Headers, *, number: int = 0, key: bytes | None = None) -> None:
        self.producer.produce(
            self.topics[number], value, key, headers=cast("list[tuple[str, str | bytes | None]]", headers)
        )
        self.producer.poll(0)

    def publish(self, body: bytes, *, number: int = 0, key: bytes | None = None) -> None:
        """Put an event on a topic in its format."""
        self.put(*WRAP[self.names[number]](body), number=number, key=key)

    def flush(self) -> None:
        assert self.producer.flush(20) == 0

    def quarantined(self, topic: str) -> list[str]:
        query = 'SELECT code FROM onceflow.quarantine WHERE topic = %s ORDER BY partition, "offset"'
        return [row["code"] for row in self.road.rows(query, topic)]

    def passed(self) -> int:
        """How many records all positions together have passed."""
        return sum(row["next_offset"] for row in self.road.rows("SELECT next_offset FROM onceflow.progress"))


def invoice_paid(event_id: str, **extra: Any) -> bytes:
    subject = {"id": f"in_{event_id}", "object": "invoice", "amount_paid": 1}
    return event_body(event_id, "invoice.paid", subject, **{"created": CREATED, **extra})


def seen(road: Road) -> list[str]:
    return sorted(row["event_id"] for row in road.rows("SELECT event_id FROM public.seen"))


@pytest.mark.parametrize(("name", "trust"), ROADS)
def test_events_of_a_foreign_topic_take_effect_once(make_road: MakeRoad, name: str, trust: str) -> None:
    """With null keys and keys that mean nothing to us, beside the bridge's topic, over a restart."""
    road = make_road(partitions=1)
    bus = Bus(road, (name, trust))
    ids = [f"evt_a{number}" for number in range(20)]
    for number, event_id in enumerate(ids):
        bus.publish(invoice_paid(event_id), key=None if number % 2 else b"tenant-7")
    bus.flush()
    road.publish(["evt_ours"])
    with road.processor(**bus.settings) as first:
        road.wait_for_events(21)
        assert end(first) == 0
    for event_id in [*ids, "evt_late"]:
        bus.publish(invoice_paid(event_id, pending_webhooks=3))
    bus.flush()
    with road.processor(**bus.settings):
        wait_until(lambda: bus.passed() == 42, "all records are passed")
    assert seen(road) == sorted([*ids, "evt_late", "evt_ours"])
    assert set(road.states().values()) == {"processed"}
    assert road.rows("SELECT code FROM onceflow.quarantine") == []
    assert len(set(road.outcome_ids())) == 22


def test_one_event_over_all_roads_has_one_effect_and_no_false_alarm(make_road: MakeRoad) -> None:
    """The webhook, a copy of it on a bus and EventBridge say the same in other bytes, in any order."""
    road = make_road(partitions=1)
    bus = Bus(road, *ROADS)
    ours = {"evt_first", "evt_last"}
    road.publish(["evt_first"], created=CREATED)
    with road.processor(**bus.settings):
        road.wait_for_events(1)
        for number in range(len(ROADS)):
            for event_id in ("evt_first", "evt_last", f"evt_{number}"):
                bus.publish(invoice_paid(event_id), number=number)
        bus.flush()
        road.wait_for_events(2 + len(ROADS))
        road.publish(["evt_last"], created=CREATED)
        wait_until(lambda: bus.passed() == 2 + 3 * len(ROADS), "all records are passed")
    assert seen(road) == sorted({*ours, *(f"evt_{number}" for number in range(len(ROADS)))})
    assert [row["code"] for row in road.rows("SELECT code FROM onceflow.quarantine")] == []


def test_other_content_under_a_known_id_is_told(make_road: MakeRoad) -> None:
    road = make_road(partitions=1)
    bus = Bus(road, ("eventbridge", "transport"), ("stripe-json", "stripe-signature"))
    bus.publish(invoice_paid("evt_a"))
    bus.flush()
    with road.processor(**bus.settings):
        road.wait_for_events(1)
        for number in (0, 1):
            bus.publish(invoice_paid("evt_a", created=CREATED - 1), number=number)
            bus.publish(invoice_paid("evt_a", request={"id": "req_other"}), number=number)
        bus.flush()
        wait_until(lambda: bus.passed() == 5, "all records are passed")
    assert len(seen(road)) == 1
    for topic in bus.topics:
        assert bus.quarantined(topic) == ["content_conflict", "content_conflict"]


def test_an_account_is_kept_to_its_topic(make_road: MakeRoad) -> None:
    """S10: a forged event of another tenant neither takes effect nor takes the marker of the real one."""
    road = make_road(partitions=1)
    bus = Bus(road, ("stripe-json", "transport"), accounts=[ACCOUNT])
    bus.publish(invoice_paid("evt_b", account=OTHER_ACCOUNT))
    bus.publish(invoice_paid("evt_a", account=ACCOUNT))
    bus.flush()
    with road.processor(**bus.settings, ONCEFLOW_STRIPE_ACCOUNTS=OTHER_ACCOUNT):
        road.wait_for_events(1)
        wait_until(lambda: bus.passed() == 2, "both records are passed")
        assert bus.quarantined(bus.topics[0]) == ["foreign_account"]
        road.publish(["evt_b"], account=OTHER_ACCOUNT)
        road.wait_for_events(2)
    assert set(road.states().values()) == {"processed"}


def test_a_live_deployment_says_loudly_that_it_believes_a_transport(make_road: MakeRoad) -> None:
    road = make_road(partitions=1)
    bus = Bus(road, ("eventbridge", "transport"))
    bus.publish(invoice_paid("evt_a", livemode=True))
    bus.flush()
    with road.processor(**bus.settings, ONCEFLOW_STRIPE_MODE="live"):
        road.wait_for_events(1)
    assert road.states() == {"evt_a": "processed"}
    [log] = road.folder.glob("processor-*.log")
    assert "live_input_trusts_transport" in log.read_text()
