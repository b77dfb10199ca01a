"""A proof beside retention, with the functions that really delete: what is older than markers are kept is neither unexplained nor believed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
import stripe
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from onceflow_processor.relay.lease import Lease
from onceflow_reconciler.retiring import retire
from onceflow_schemas.envelope import read_envelope
from onceflow_schemas.event_record import build_event
from onceflow_simulator import Simulator
from tests.processor.conftest import ACCOUNT, KEY
from tests.processor.conftest import make_road as make_road  # noqa: PLC0414 - a fixture of this folder too
from tests.processor.processor_process import MakeRoad
from tests.reconciler.verify.proving_road import ProvingRoad
from tests.reconciler.verify.test_proving_hours import kept_hours
from tests.retention.ledger import Ledger

DAY = 24 * 3600
OLD, MIDDLE = 100, 60
KEEP_DAYS = 72
EACH = 3
"""Events of each age."""


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator(seed=11, start=time.time() - OLD * DAY) as running:
        yield running


@pytest.fixture
def proving(make_road: MakeRoad, simulator: Simulator) -> ProvingRoad:
    made = ProvingRoad(make_road(), simulator)
    # As long as the setting says: by its default the broker would delete the old records some day.
    entry = ConfigEntry("retention.ms", str(400 * DAY * 1000), incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ConfigResource.Type.TOPIC, made.road.events, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": made.road.bootstrap})
    admin.incremental_alter_configs([topic])[topic].result(20)
    made.environment |= {
        "ONCEFLOW_PROCESSOR_HORIZON_DAYS": "400",
        "ONCEFLOW_TOPICS_RETENTION_DAYS": "400",
        "ONCEFLOW_PROCESSOR_HANDLERS": "tests.reconciler.handlers:handlers",
    }
    return made


def deliver(proving: ProvingRoad, *, days: int) -> None:
    """Have events made, and published by the bridge, so many days ago."""
    moved = int(time.time()) - days * DAY - int(proving.simulator.state()["now"])
    proving.simulator.advance(max(1, moved))
    client = stripe.StripeClient(proving.simulator.api_key, base_addresses={"api": proving.simulator.url})
    for number in range(EACH):
        client.v1.customers.create({"name": f"customer {number}"})
    producer = Producer({"bootstrap.servers": proving.road.bootstrap, "partitioner": "murmur2_random"})
    for event in client.v1.events.list({"limit": EACH}).data:
        body = json.dumps(event.to_dict(for_json=True)).encode()
        received_at = datetime.fromtimestamp(int(event.created) + 1, UTC)
        made = build_event(
            body,
            envelope=read_envelope(body),
            default_account=ACCOUNT,
            default_mode="test",
            received_at=received_at,
            endpoint="endpoint-1",
            source="webhook",
            deployment=proving.road.deployment,
            topic=proving.road.events,
            key=KEY,
            traceparent=None,
        )
        producer.produce(
            proving.road.events,
            key=made.key,
            value=made.value,
            headers=list(made.headers),
            timestamp=int(received_at.timestamp() * 1000),
        )
    assert producer.flush(20) == 0
    proving.simulator.advance(10)


def of_age(days: int) -> str:
    return f"event_created < now() - interval '{days} days'"


def test_what_retention_has_deleted_is_forgotten_and_what_is_younger_is_not(proving: ProvingRoad) -> None:
    for days in (OLD, MIDDLE, 0):
        deliver(proving, days=days)
    proving.settle(3 * EACH)
    # It was processed when it came.
    proving.change("UPDATE onceflow.inbox SET processed_at = received_at")
    kept_hours(proving, days=OLD)
    former = proving.answer()
    assert (former.unexplained, former.events) == ((), 3 * EACH)
    ledger = Ledger(proving.road.database_url)
    ledger.hold_lease()
    assert ledger.sweep_markers(keep_days=KEEP_DAYS) == EACH
    judge_forgotten(proving, former.proof)
    judge_what_is_younger(proving)
    # The hours that were kept go with the markers, and no other.
    with psycopg.connect(proving.road.database_url, autocommit=True) as connection:
        lease = Lease(connection, name="reconciler:x", owner="x", ttl_seconds=60, clock=time.monotonic)
        assert lease.acquire()
        assert retire(connection, lease, name="reconciler:x", findings_days=365) >= (OLD - KEEP_DAYS - 1) * 24
    judge_forgotten(proving, former.proof)
    judge_what_is_younger(proving)


def judge_forgotten(proving: ProvingRoad, former: Mapping[str, Any]) -> None:
    """Records that outlived their markers are counted as forgotten, and nothing is said to be proved of their hours."""
    for answer in (proving.answer(), proving.answer(former=former), proving.answer(with_stripe=False)):
        assert (answer.unexplained, answer.events) == ((), 2 * EACH)
        assert answer.counts["records"] == {"forgotten": EACH, "processed": 2 * EACH}
    [(_, hours)] = proving.answer().proof["hours"].items()
    assert min(map(int, hours)) >= time.time() - (KEEP_DAYS + 1) * DAY


def judge_what_is_younger(proving: ProvingRoad) -> None:
    """An event that Stripe does not list any more, and whose marker is gone before its time."""
    with proving.altered(f"DELETE FROM onceflow.inbox WHERE {of_age(MIDDLE - 1)}"):
        found = proving.answer()
        assert {kind for kind, _, _ in found.unexplained} == {"hour_differs", "record_without_state"}
