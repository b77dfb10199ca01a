"""Events that come by other inputs than the bridge's topic."""

from __future__ import annotations

import json

import psycopg
import stripe
from confluent_kafka import Producer

from tests.conftest import create_topic
from tests.processor.inputs.foreign_records import SECRET, stripe_json
from tests.reconciler.conftest import PLATFORM, ReconcilerRoad


def test_an_event_that_waits_in_another_input_is_not_missed(road: ReconcilerRoad) -> None:
    """Neither in one of a foreign format, nor in one that carries the bridge's own records."""
    foreign, mirror = (create_topic(road.bootstrap, prefix=name, partitions=1) for name in ("foreign", "mirror"))
    signed = {"format": "stripe-json", "trust": "stripe-signature", "secrets": [f"endpoint-1={SECRET}"]}
    inputs = [{"topic": road.events}, {"topic": foreign, **signed}, {"topic": mirror}]
    road._environment["ONCEFLOW_INPUTS"] = json.dumps(inputs)
    by_bus, by_mirror, missed = road.customers(3)
    client = stripe.StripeClient(road.stripe.api_key, base_addresses={"api": road.stripe.url})
    producer = Producer({"bootstrap.servers": road.bootstrap})
    body = json.dumps(client.v1.events.retrieve(by_bus).to_dict(for_json=True)).encode()
    value, headers = stripe_json(body)
    producer.produce(foreign, value=value, headers=list[tuple[str, str | bytes | None]](headers))
    assert producer.flush(20) == 0
    own, road.events = road.events, mirror
    road.deliver(by_mirror)
    road.events = own
    road.stripe.advance(5)
    assert road.once()[PLATFORM]["brought"] == 1
    assert [row["facts"]["event_id"] for row in road.findings()] == [missed]
    with road.processor():
        road.wait_for_events(3)
    assert set(road.states()) == {by_bus, by_mirror, missed}


def test_another_input_that_was_replaced_is_told(road: ReconcilerRoad) -> None:
    other = create_topic(road.bootstrap, prefix="other", partitions=1)
    road._environment["ONCEFLOW_INPUTS"] = json.dumps([{"topic": road.events}, {"topic": other}])
    with psycopg.connect(road.database_url) as connection:
        connection.execute(
            'INSERT INTO onceflow.progress (cluster_id, topic_id, "partition", topic, next_offset, epoch, owner, clean,'
            " batch_end) VALUES ('c', 'former', 0, %s, 5, 1, 'o', true, 5)",
            [other],
        )
    road.once()
    assert [(row["kind"], row["subject"]) for row in road.findings()] == [("topic_replaced", f"topic {other}")]
