"""Accidents that others reported, as small situations, and what is right in them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import psycopg
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from onceflow_simulator import Simulator
from tests.processor.processor_process import wait_until
from tests.reconciler.conftest import PLATFORM, MakeReconcilerRoad, ReconcilerRoad
from tests.reconciler.test_missed_events import seen, told
from tests.reconciler.test_objects import OPERATION, charged, insert_operation

HOUR = 3600


def test_an_event_of_the_other_mode_is_neither_brought_nor_taken_for_one_of_this(road: ReconcilerRoad) -> None:
    """R15."""
    road.stripe.add_key("sk_live_other")
    [theirs] = road.customers(1, api_key="sk_live_other")
    [ours] = road.customers(1)
    road.stripe.advance(5)
    assert road.once()[PLATFORM] == told(listed=1, missed=1, brought=1)
    assert [row["facts"]["event_id"] for row in road.findings()] == [ours] != [theirs]
    # A list that shows it all the same proves nothing.
    odd = {"id": "evt_live", "type": "customer.created", "livemode": True, "data": {"object": {"id": "cus_1"}}}
    road.stripe.tell_events([{**odd, "created": int(road.stripe.advance(0))}])
    road.stripe.advance(5)
    assert road.once(status=1)[PLATFORM]["waits"] == "other_mode"


def test_an_effect_is_found_in_lists_while_the_search_shows_nothing(road: ReconcilerRoad) -> None:
    """R37: and what is not found is left as it is."""
    road.stripe.set(search_lag_seconds=3600)
    insert_operation(road, state="unknown", external_id=None)
    assert road.once()[PLATFORM]["drifts"] == 0
    assert states(road) == ["unknown"]
    charged(road)
    road.stripe.advance(5)
    assert road.once(status=1)[PLATFORM]["drifts"] == 1
    assert road.rows("SELECT operation_id, status FROM onceflow.operation_hint") == [
        {"operation_id": OPERATION, "status": "succeeded"}
    ]
    assert states(road) == ["unknown"], "its workers settle it, by what they see"
    assert road.stripe.reads("/v1/payment_intents/search") == 0
    assert road.stripe.ledger().count("charge") == 1


def states(road: ReconcilerRoad) -> list[str]:
    return [row["state"] for row in road.rows("SELECT state FROM onceflow.operation")]


def test_events_that_are_lost_while_they_wait_in_the_topic_are_brought_again(make_road: MakeReconcilerRoad) -> None:
    """R47: the cursor has passed them, since they were on their way."""
    road = make_road(partitions=1)
    road._environment["ONCEFLOW_RECONCILER_FIRST_HOURS"] = "3"
    events = road.customers(20)
    road.stripe.advance(5)
    road.once()
    road.stripe.advance(5400)
    for _ in range(2):
        assert road.once()[PLATFORM]["missed"] == 0
    assert road.rows("SELECT waiting FROM onceflow.reconcile_hour WHERE waiting > 0") == [{"waiting": 20}]
    lose_all_records(road)
    with psycopg.connect(road.database_url) as connection:
        connection.execute("UPDATE onceflow.reconcile_hour SET read_at = read_at - interval '1 hour'")
    assert road.once()[PLATFORM]["brought"] == 20
    with road.processor():
        road.wait_for_events(20)
    assert seen(road) == Counter(events)
    with psycopg.connect(road.database_url) as connection:
        connection.execute("UPDATE onceflow.reconcile_hour SET read_at = read_at - interval '1 hour'")
    assert road.once()[PLATFORM]["missed"] == 0
    assert road.rows("SELECT waiting FROM onceflow.reconcile_hour WHERE waiting > 0") == []


def lose_all_records(road: ReconcilerRoad) -> None:
    """As when retention, or somebody, removes what nobody has read."""
    admin = AdminClient({"bootstrap.servers": road.bootstrap})
    [done] = admin.delete_records([TopicPartition(road.events, 0, -1)]).values()
    assert done.result(timeout=20).low_watermark == 20


def test_no_event_of_a_crowded_second_is_left_out(road: ReconcilerRoad) -> None:
    """R55: 250 of one second, one of which becomes visible 40 seconds later, behind the cursor."""
    road.once()
    now = int(road.stripe.stop_clock())
    road.stripe.tell_events([_told(number, now) for number in range(249)])
    road.stripe.set(event_lag_seconds=40)
    road.customers(1)
    road.stripe.advance(10)
    first = road.once()[PLATFORM]
    assert (first["listed"], first["brought"]) == (249, 249)
    road.stripe.set(event_lag_seconds=0)
    road.stripe.advance(40)
    road.stripe.tell_events([_told(1000, now + 50)])
    road.stripe.advance(5)
    second = road.once()[PLATFORM]
    assert (second["listed"], second["missed"], second["brought"]) == (251, 2, 2)
    ids = [row["facts"]["event_id"] for row in road.findings()]
    assert (len(ids), len(set(ids))) == (251, 251)
    assert road.rows("SELECT count(*) AS n FROM onceflow.remedy") == [{"n": 251}]


def _told(number: int, created: int) -> dict[str, Any]:
    subject = {"id": f"cus_{number}", "object": "customer"}
    return {"id": f"evt_{number:05}", "type": "customer.created", "created": created, "data": {"object": subject}}


def test_a_backlog_drains_within_what_stripe_lets_us_read(road: ReconcilerRoad) -> None:
    """R59: five reads a second; whole pages, and never one event at a time."""
    road._environment["ONCEFLOW_RECONCILER_FIRST_HOURS"] = "1"
    now = int(road.stripe.stop_clock())
    road.stripe.tell_events([_told(number, now) for number in range(2_000)])
    road.stripe.advance(5)
    road.stripe.set(account_per_second=5.0, retry_after=1)
    assert road.once()[PLATFORM] == told(listed=2_000, missed=2_000, brought=2_000)
    limited = road.stripe.reads("/v1/events", account=PLATFORM)
    assert limited <= 60, "20 pages, and few that were refused"
    assert road.stripe.reads("/v1/events/evt_00000") == 0


def test_a_webhook_of_a_missed_event_is_waited_for_no_longer(simulator: Simulator, road: ReconcilerRoad) -> None:
    """An endpoint with another secret: Stripe goes on trying, the events come all the same, and a person is told."""
    endpoint = simulator.add_webhook("http://127.0.0.1:9/webhooks/stripe", secrets=["whsec_x"])
    road.customers(3)
    wait_until(lambda: len(simulator.deliveries()) >= 3, "Stripe has tried")
    simulator.advance(5)
    assert road.once()[PLATFORM]["brought"] == 3
    assert "endpoint_refused" in endpoint_states(road), endpoint
    [row] = road.rows("SELECT facts FROM onceflow.finding WHERE kind = 'endpoint_refused'")
    assert row["facts"]["types"] == ["customer.created"]
    with psycopg.connect(road.database_url) as connection:
        connection.execute("UPDATE onceflow.finding SET first_seen_at = first_seen_at - interval '2 hours'")
    road.once()
    assert endpoint_states(road)["endpoint_refused"] == "healed"


def endpoint_states(road: ReconcilerRoad) -> dict[str, str]:
    rows = road.rows("SELECT kind, state FROM onceflow.finding WHERE kind LIKE 'endpoint%%'")
    return {row["kind"]: row["state"] for row in rows}
