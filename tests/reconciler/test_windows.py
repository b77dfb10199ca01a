"""Windows of a proof: accounts, formats, times, proofs of before, and logs whose beginning is gone."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import stripe
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from onceflow_reconciler.verify.hours import extended
from tests.conftest import create_topic
from tests.processor.inputs.foreign_records import WRAP
from tests.reconciler.conftest import CONNECTED, PLATFORM, MakeReconcilerRoad, ReconcilerRoad

TWO_HOURS = 7200


def foreign_topic(road: ReconcilerRoad) -> str:
    """A topic of somebody else's bus beside the bridge's."""
    topic = create_topic(road.bootstrap, prefix="foreign", partitions=1)
    foreign = {"topic": topic, "format": "eventbridge", "trust": "transport"}
    road._environment["ONCEFLOW_INPUTS"] = json.dumps([{"topic": road.events}, foreign])
    return topic


def bring_by_bus(road: ReconcilerRoad, topic: str, event_ids: list[str]) -> None:
    client = stripe.StripeClient(road.stripe.api_key, base_addresses={"api": road.stripe.url})
    producer = Producer({"bootstrap.servers": road.bootstrap})
    for event_id in event_ids:
        body = json.dumps(client.v1.events.retrieve(event_id).to_dict(for_json=True)).encode()
        producer.produce(topic, WRAP["eventbridge"](body).value)
    assert producer.flush(20) == 0


def stripe_time(road: ReconcilerRoad) -> datetime:
    return datetime.fromtimestamp(road.stripe.advance(0), UTC)


def lose_beginning(road: ReconcilerRoad, topic: str, *, partition: int, until: int) -> None:
    admin = AdminClient({"bootstrap.servers": road.bootstrap})
    [done] = admin.delete_records([TopicPartition(topic, partition, until)]).values()
    assert done.result(timeout=20).low_watermark == until


def test_accounts_formats_times_and_logs_that_begin_late(make_road: MakeReconcilerRoad) -> None:
    road = make_road(partitions=1)
    foreign = foreign_topic(road)
    road.stripe.connect(CONNECTED)
    # In the first hours: by the reconciler, for two accounts, and by somebody else's bus.
    bring_by_bus(road, foreign, road.customers(2))
    road.customers(2)
    road.customers(3, account=CONNECTED)
    road.stripe.advance(5)
    found = road.once(accounts=CONNECTED)
    assert {account: told["listed"] for account, told in found.items()} == {PLATFORM: 4, CONNECTED: 3}
    # What waits on another bus is on its way.
    assert found[PLATFORM]["brought"] == 2
    road.settle(7, accounts=CONNECTED)
    middle = stripe_time(road)
    road.stripe.advance(TWO_HOURS)
    road.customers(1)
    road.stripe.advance(5)
    road.once(accounts=CONNECTED)
    road.settle(8, accounts=CONNECTED)

    def asked(**given: Any) -> tuple[int, tuple[Any, ...]]:
        answer = road.answer(accounts=CONNECTED, **given)
        return answer.events, answer.unexplained

    assert asked() == (8, ())
    assert asked(account=PLATFORM) == (5, ())
    assert asked(account=CONNECTED) == (3, ())
    assert asked(until=middle) == (7, ())
    assert asked(since=middle) == (1, ())
    assert asked(since=middle, account=CONNECTED) == (0, ())
    # Nothing was published since: what is older is not missed.
    assert asked(since=stripe_time(road), with_stripe=False) == (0, ())
    # A proof of the first hours is extended by one of the others, and both are held against all.
    early = road.answer(accounts=CONNECTED, until=middle).proof
    both = extended(early, road.answer(accounts=CONNECTED, since=middle, former=early).proof)
    assert {account: sum(one["events"] for one in hours.values()) for account, hours in both["hours"].items()} == {
        PLATFORM: 5,
        CONNECTED: 3,
    }
    settled = {
        account: {hour: {**one, "settled": True} for hour, one in hours.items()}
        for account, hours in both["hours"].items()
    }
    assert asked(former={**both, "hours": settled}) == (8, ())
    # The logs begin later now, before their time: that is told, and nothing else.
    records = road.answer(accounts=CONNECTED).counts["records"]["processed"]
    lose_beginning(road, road.events, partition=0, until=2)
    lose_beginning(road, foreign, partition=0, until=1)
    for lane in range(3):
        if road.rows("SELECT FROM onceflow.outcome WHERE lane = %s", lane):
            lose_beginning(road, road.outcomes, partition=lane, until=1)
    answer = road.answer(accounts=CONNECTED)
    assert (answer.events, {kind for kind, _, _ in answer.unexplained}) == (8, {"records_deleted"})
    assert answer.counts["records"]["processed"] < records
    # And a marker of what the log still has is missed all the same.
    last = '(SELECT event_id FROM onceflow.inbox ORDER BY topic_id = %s DESC, "offset" DESC LIMIT 1)'
    [row] = road.rows(f"DELETE FROM onceflow.inbox WHERE event_id = {last} RETURNING account", "")
    kinds = {kind for kind, _, _ in road.answer(accounts=CONNECTED).unexplained}
    assert {"record_without_state", "missed_event"} <= kinds, row
