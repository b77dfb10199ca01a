"""Thin events: fetched with their object, then handled as any other; without the setting kept for a person."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from onceflow import Event, Handlers, Tx
from onceflow_simulator import Simulator
from tests.processor.conftest import Bench, record
from tests.processor.poison import key_rows
from tests.processor.reads.conftest import Desk
from tests.processor.reads.stripe_side import client_of, thin_events

MakeBench = Callable[[Handlers], Bench]


class Met:
    """Handlers that note what they meet."""

    def __init__(self, order: Any = "as_is") -> None:
        self.handlers = Handlers()
        self.events: list[Event] = []

        @self.handlers.on("v1.customer.*", order=order)
        def meet(event: Event, tx: Tx) -> None:
            self.events.append(event)
            tx.outcome("customer", key=event.object["id"], data={"type": event.type})


@pytest.fixture
def met() -> Met:
    return Met()


def test_a_thin_event_is_handled_with_its_object(bench: MakeBench, desk: Desk, simulator: Simulator, met: Met) -> None:
    customer = client_of(simulator).v1.customers.create({"email": "a@example.com"}).id
    [pushed] = thin_events(simulator)
    one = bench(met.handlers)
    one.read_objects = True
    one.run([record(pushed, 0)])
    thin_id = json.loads(pushed)["id"]
    assert one.states() == {thin_id: "parked"}
    assert [row[1:] for row in key_rows(one)] == [("reading", thin_id)]
    assert one.redrive() == []
    assert (desk.turn(), desk.turn()) == (1, 1)
    one.redrive()
    assert one.states() == {thin_id: "processed"}
    [event] = met.events
    assert (event.id, event.type, event.account) == (thin_id, "v1.customer.created", "acct_test")
    assert (event.object["id"], event.object["email"]) == (customer, "a@example.com")
    assert (event.raw, event.object_was_read) == (pushed, True)
    assert event.body["snapshot_event"].startswith("evt_")
    assert one.outcomes() == [("customer", customer)]
    # Delivered again: a duplicate like any other.
    one.run([record(pushed, 1)])
    assert (len(met.events), one.next_offset()) == (1, 2)
    assert simulator.reads(f"/v2/core/events/{thin_id}") == 1


def test_kept_for_a_person_then_handled_once_the_setting_is_on(
    bench: MakeBench, desk: Desk, simulator: Simulator, met: Met
) -> None:
    customer = client_of(simulator).v1.customers.create({}).id
    [pushed] = thin_events(simulator)
    thin_id = json.loads(pushed)["id"]
    one = bench(met.handlers)
    one.run([record(pushed, 0)])
    assert (one.states(), one.quarantine()) == ({thin_id: "quarantined"}, {0: "unsupported_kind"})
    one.read_objects = True
    retry(one, thin_id)
    one.redrive()
    assert one.states() == {thin_id: "parked"}
    desk.turn()
    desk.turn()
    one.redrive()
    assert one.states() == {thin_id: "processed"}
    assert [event.object["id"] for event in met.events] == [customer]


def retry(one: Bench, event_id: str) -> None:
    """As ``onceflow quarantine retry`` does it."""
    from onceflow_processor.claim import event_of  # noqa: PLC0415

    item = one.items[0]
    assert event_of(item).identity.event_id == event_id
    one.change(
        "INSERT INTO onceflow.parked_key (order_key, reason, account, mode, event_id, due_at)"
        " SELECT %s, 'retry', account, mode, event_id, clock_timestamp() FROM onceflow.quarantine",
        item.order_key,
    )
    one.change(
        'INSERT INTO onceflow.parked (account, mode, event_id, order_key, topic_id, partition, "offset", topic, key, value,'
        " headers, record_time, type)"
        ' SELECT account, mode, event_id, %s, topic_id, partition, "offset", topic, key, value, headers, record_time,'
        " 'v1.customer.created' FROM onceflow.quarantine",
        item.order_key,
    )
    one.change("UPDATE onceflow.inbox SET state = 'parked'")


def test_one_that_nobody_handles_is_ignored(bench: MakeBench, desk: Desk, simulator: Simulator) -> None:
    client_of(simulator).v1.products.create({"name": "thing"})
    one = bench(Met().handlers)
    one.read_objects = True
    one.run([record(pushed, n) for n, pushed in enumerate(thin_events(simulator))])
    assert set(one.states().values()) == {"ignored"}
    assert desk.rows() == {}


def test_an_object_that_is_gone(bench: MakeBench, desk: Desk, simulator: Simulator) -> None:
    """The writer of state waits for the deletion; whoever meets all events meets a deleted object."""
    client = client_of(simulator)
    customer = client.v1.customers.create({}).id
    client.v1.customers.delete(customer)
    latest = Met("latest")
    seen: list[tuple[str, Any]] = []
    latest.handlers.on("v1.customer.*", name="all")(
        lambda event, _tx: seen.append((event.type, event.object.get("deleted")))
    )
    one = bench(latest.handlers)
    one.read_objects = True
    one.run([record(pushed, n) for n, pushed in enumerate(thin_events(simulator))])
    for _ in range(4):
        desk.turn()
        one.redrive()
    assert set(one.states().values()) == {"processed"}
    assert [event.type for event in latest.events] == ["v1.customer.deleted"]
    assert seen == [("v1.customer.created", True), ("v1.customer.deleted", True)]


def test_states_that_were_read_never_go_back(bench: MakeBench, desk: Desk, simulator: Simulator) -> None:
    client = client_of(simulator)
    customer = client.v1.customers.create({"name": "A"}).id
    client.v1.customers.update(customer, {"name": "B"})
    latest = Met("latest")
    one = bench(latest.handlers)
    one.read_objects = True
    created, updated = thin_events(simulator)
    one.run([record(updated, 0), record(created, 1)])
    for _ in range(4):
        desk.turn()
        one.redrive()
    assert set(one.states().values()) == {"processed"}
    assert {event.object["name"] for event in latest.events} == {"B"}


def test_a_foreign_object_of_version_2(bench: MakeBench, desk: Desk, simulator: Simulator) -> None:
    """R07: what cannot be read is named, and the others of its partition go on."""
    body = {
        "id": "evt_T7",
        "object": "v2.core.event",
        "type": "v2.core.account[configuration.merchant].capability_status_updated",
        "livemode": False,
        "created": "2026-01-01T00:00:00.123456789Z",
        "related_object": {"id": "acct_T7", "type": "v2.core.account", "url": "/v2/core/accounts/acct_T7"},
    }
    handlers = Handlers()
    handlers.on(str(body["type"]), name="capability")(lambda _event, _tx: None)
    one = bench(handlers)
    one.read_objects = True
    one.run([record(json.dumps(body).encode(), 0)])
    assert one.states() == {"evt_T7": "parked"}
    desk.turn()
    row = desk.rows()["evt_T7"]
    assert (row["state"], row["code"]) == ("asked", "no_such_event")
    assert simulator.reads("/v2/core/events/evt_T7") == 1
