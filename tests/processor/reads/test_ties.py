"""Ties that no rank decides: read once, told to handlers that write state, and never a step back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest
import stripe

from onceflow import Event, Handlers, Tx
from onceflow_processor.records import Record
from onceflow_schemas.object_reads import TRIES_MAX
from onceflow_simulator import Simulator
from tests.processor.conftest import Bench, event_body, record
from tests.processor.poison import ask_retry, key_rows
from tests.processor.processor_process import wait_until
from tests.processor.reads.conftest import SHOP, Desk
from tests.processor.reads.stripe_side import client_of

MakeBench = Callable[[Handlers], Bench]
SECOND = 1_767_225_600
VERSION = "2026-10-28.endive"


class Shop:
    """Handlers that write down a customer's name, and each step of it."""

    def __init__(self) -> None:
        self.handlers = Handlers()
        self.met: list[tuple[str, str, bool]] = []

        @self.handlers.on("customer.*", order="latest")
        def write_name(event: Event, tx: Tx) -> None:
            self.met.append(("latest", event.object["name"], event.object_was_read))
            tx.execute(
                "INSERT INTO public.ledger VALUES (%s, %s) ON CONFLICT (event_id) DO UPDATE SET note = EXCLUDED.note",
                [event.object["id"], event.object["name"]],
            )

        @self.handlers.on("customer.updated", order="each")
        def note_step(event: Event, _tx: Tx) -> None:
            self.met.append(("each", event.object["name"], event.object_was_read))
            assert json.loads(event.raw)["data"]["object"]["name"] == event.object["name"]

    def latest(self) -> list[tuple[str, bool]]:
        return [(name, was_read) for kind, name, was_read in self.met if kind == "latest"]


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def client(simulator: Simulator) -> stripe.StripeClient:
    return client_of(simulator)


@pytest.fixture
def customer(client: stripe.StripeClient) -> str:
    return client.v1.customers.create({"name": "now"}).id


def told(
    customer: str, offset: int, name: str, *, created: int = SECOND, key: str | None = None, **more: Any
) -> Record:
    """A record of an update of the customer."""
    subject = {"id": customer, "object": "customer", "name": name}
    extra = {"created": created, "api_version": VERSION, **more}
    made = record(event_body(f"evt_{offset}", "customer.updated", subject, **extra), offset)
    if key is not None:
        made = replace(made, key=f"{SHOP}/{key}".encode())
    return made


def names(one: Bench) -> list[str]:
    return [row["note"] for row in one.rows("SELECT note FROM public.ledger")]


def test_a_tie_is_read_and_the_object_as_it_is_now_is_met(
    bench: MakeBench, desk: Desk, simulator: Simulator, shop: Shop, customer: str
) -> None:
    one = bench(shop.handlers)
    one.read_objects = True
    one.run([told(customer, 0, "first"), told(customer, 1, "second"), told(customer, 2, "third")])
    assert one.states() == {"evt_0": "processed", "evt_1": "parked", "evt_2": "parked"}
    assert [row[1:] for row in key_rows(one)] == [("reading", "evt_1")]
    assert one.rows("SELECT event_id, code FROM onceflow.parked ORDER BY seq") == [
        {"event_id": "evt_1", "code": "reading"},
        {"event_id": "evt_2", "code": None},
    ]
    assert one.redrive() == [], "nothing is due before the read"
    assert desk.turn() == 1
    assert len(one.redrive()) == 2
    assert set(one.states().values()) == {"processed"}
    assert key_rows(one) == []
    # The third is from before the read, so the state writer is not told of it.
    assert shop.latest() == [("first", False), ("now", True)]
    assert [name for kind, name, _ in shop.met if kind == "each"] == ["first", "second", "third"]
    assert not any(was_read for kind, _, was_read in shop.met if kind == "each")
    assert names(one) == ["now"]
    assert simulator.reads(f"/v1/customers/{customer}") == 1
    [guard] = one.rows("SELECT type, event_id FROM onceflow.object_guard")
    assert guard == {"type": "object.read", "event_id": "evt_1"}


def test_a_hundred_ties_are_one_read(
    bench: MakeBench, desk: Desk, simulator: Simulator, shop: Shop, customer: str
) -> None:
    one = bench(shop.handlers)
    one.read_objects = True
    one.run([told(customer, offset, f"name {offset}") for offset in range(101)])
    assert sum(state == "parked" for state in one.states().values()) == 100
    desk.turn()
    wait_until(lambda: one.redrive() is not None and not key_rows(one), "all have been tried")
    assert set(one.states().values()) == {"processed"}
    assert simulator.reads(f"/v1/customers/{customer}") == 1
    assert (shop.latest(), names(one)) == ([("name 0", False), ("now", True)], ["now"])


def test_a_hundred_ties_under_other_keys_are_one_read_too(
    bench: MakeBench, desk: Desk, simulator: Simulator, shop: Shop, customer: str
) -> None:
    """Foreign keys: each event asks by itself."""
    one = bench(shop.handlers)
    one.read_objects = True
    first = told(customer, 0, "name 0")
    one.run([first, *(told(customer, offset, f"name {offset}", key=f"evt_{offset}") for offset in range(1, 101))])
    assert len(key_rows(one)) == 100
    desk.turn()
    wait_until(lambda: one.redrive() is not None and not key_rows(one), "all have been tried")
    assert set(one.states().values()) == {"processed"}
    assert simulator.reads(f"/v1/customers/{customer}") == 1
    assert names(one) == ["now"]


def test_a_newer_event_wins_over_the_read(bench: MakeBench, desk: Desk, shop: Shop, customer: str) -> None:
    one = bench(shop.handlers)
    one.read_objects = True
    one.run([told(customer, 0, "first"), told(customer, 1, "second")])
    desk.turn()
    # Made by Stripe after the read.
    one.run([told(customer, 2, "later", created=int(time.time()) + 60)])
    assert one.states()["evt_2"] == "parked", "it stands behind the one that waits"
    one.redrive(turns=3)
    assert shop.latest() == [("first", False), ("now", True), ("later", False)]
    assert names(one) == ["later"]


def test_a_newer_event_under_another_key_leaves_nothing_to_read(
    bench: MakeBench, desk: Desk, shop: Shop, customer: str
) -> None:
    one = bench(shop.handlers)
    one.read_objects = True
    one.run([told(customer, 0, "first"), told(customer, 1, "second")])
    one.run([told(customer, 2, "later", created=SECOND + 1, key="evt_2")])
    assert names(one) == ["later"]
    desk.turn()
    one.redrive()
    assert set(one.states().values()) == {"processed"}
    assert names(one) == ["later"], "an older event never lowers newer state"


def test_the_same_second_as_the_read_is_read_again(
    bench: MakeBench, desk: Desk, simulator: Simulator, shop: Shop, customer: str
) -> None:
    """Nobody can say whether an event of that second was before or after the read."""
    one = bench(shop.handlers)
    one.read_objects = True
    one.run([told(customer, 0, "first"), told(customer, 1, "second")])
    desk.turn()
    one.redrive()
    [guard] = one.rows("SELECT extract(epoch FROM created)::bigint AS second FROM onceflow.object_guard")
    client_of(simulator).v1.customers.update(customer, {"name": "newest"})
    one.run([told(customer, 2, "between", created=guard["second"])])
    assert one.states()["evt_2"] == "parked"
    desk.turn()
    one.redrive()
    assert names(one) == ["newest"]
    assert simulator.reads(f"/v1/customers/{customer}") == 2


def test_an_object_that_is_gone_has_no_newer_state(
    bench: MakeBench, desk: Desk, shop: Shop, customer: str, client: stripe.StripeClient
) -> None:
    one = bench(shop.handlers)
    one.read_objects = True
    one.run([told(customer, 0, "first"), told(customer, 1, "second")])
    client.v1.customers.delete(customer)
    desk.turn()
    one.redrive()
    assert one.states()["evt_1"] == "processed"
    assert shop.latest() == [("first", False)]
    # Its deletion is still told, and is the end.
    subject = {"id": customer, "object": "customer", "name": "deleted"}
    one.run([record(event_body("evt_2", "customer.deleted", subject, created=SECOND), 2)])
    assert shop.latest() == [("first", False), ("deleted", False)]


def fail_to_read(one: Bench, *, desk: Desk, simulator: Simulator, customer: str) -> None:
    """Three events of one second, the second of which needs a read that fails until it is given up."""
    one.read_objects = True
    simulator.faults.add("server_error", match={"method": "GET"}, times=TRIES_MAX)
    one.run([told(customer, 0, "first"), told(customer, 1, "second"), told(customer, 2, "third")])
    for _ in range(TRIES_MAX):
        desk.make_due()
        desk.turn()
    one.redrive()


def test_a_read_that_fails_for_good_leaves_the_event_to_a_person(
    bench: MakeBench, desk: Desk, simulator: Simulator, shop: Shop, customer: str
) -> None:
    one = bench(shop.handlers)
    fail_to_read(one, desk=desk, simulator=simulator, customer=customer)
    assert one.states() == {"evt_0": "processed", "evt_1": "quarantined", "evt_2": "parked"}
    assert one.quarantine() == {1: "read_failed"}
    assert [row[1:] for row in key_rows(one)] == [("quarantined", "evt_1")]
    # A person says "retry": it asks anew.
    ask_retry(one, "evt_1")
    one.redrive()
    assert one.states()["evt_1"] == "parked"
    desk.turn()
    one.redrive(turns=2)
    assert set(one.states().values()) == {"processed"}
    assert names(one) == ["now"]


def test_what_failed_for_one_event_is_asked_anew_for_the_one_behind_it(
    bench: MakeBench, desk: Desk, simulator: Simulator, shop: Shop, customer: str
) -> None:
    one = bench(shop.handlers)
    fail_to_read(one, desk=desk, simulator=simulator, customer=customer)
    # What ``onceflow quarantine skip`` does: the key goes on with its next event.
    with psycopg.connect(one.url) as person:
        person.execute(
            "UPDATE onceflow.parked_key SET reason = 'retry', due_at = clock_timestamp(), fence = fence + 1,"
            " (account, mode, event_id) = (SELECT account, mode, event_id FROM onceflow.parked)"
        )
    one.redrive()
    assert one.states()["evt_2"] == "parked"
    assert [row[1:] for row in key_rows(one)] == [("reading", "evt_2")]
    # Nor does a redrive in between take the old failure for the answer.
    with psycopg.connect(one.url) as person:
        person.execute("UPDATE onceflow.parked_key SET reason = 'retry', due_at = clock_timestamp()")
    one.redrive()
    assert one.quarantine() == {1: "read_failed"}
    desk.turn()
    one.redrive()
    assert one.states() == {"evt_0": "processed", "evt_1": "quarantined", "evt_2": "processed"}
    assert names(one) == ["now"]


def test_an_event_meets_a_read_of_its_own_version_only(
    bench: MakeBench, desk: Desk, simulator: Simulator, shop: Shop, customer: str
) -> None:
    one = bench(shop.handlers)
    one.read_objects = True
    one.run([told(customer, 0, "first"), told(customer, 1, "second")])
    one.run([told(customer, 2, "third", key="evt_2", api_version="2024-06-20")])
    with desk.open() as connection:
        connection.execute("UPDATE onceflow.object_read SET due_at = 'infinity' WHERE api_version = %s", [VERSION])
    assert desk.turn() == 1
    with psycopg.connect(one.url) as person:
        person.execute("UPDATE onceflow.parked_key SET reason = 'retry', due_at = clock_timestamp()")
    one.redrive(turns=4)
    assert one.states() == {"evt_0": "processed", "evt_1": "parked", "evt_2": "processed"}
    desk.make_due()
    assert desk.turn() == 1
    one.redrive()
    assert set(one.states().values()) == {"processed"}
    assert simulator.reads(f"/v1/customers/{customer}") == 2


def test_without_the_setting_the_later_record_wins(bench: MakeBench, desk: Desk, shop: Shop, customer: str) -> None:
    one = bench(shop.handlers)
    one.run([told(customer, 0, "first"), told(customer, 1, "second")])
    assert (names(one), desk.rows()) == (["second"], {})


def test_what_cannot_be_read_is_not_asked_for(bench: MakeBench, desk: Desk) -> None:
    handlers = Handlers()
    handlers.on("thing.*", order="latest", name="thing")(lambda _event, _tx: None)
    one = bench(handlers)
    one.read_objects = True
    for offset in range(2):
        subject = {"id": "thing_1", "object": "thing", "name": offset}
        one.run([record(event_body(f"evt_{offset}", "thing.updated", subject), offset)])
    assert (set(one.states().values()), desk.rows()) == ({"processed"}, {})


def test_a_restored_database_reads_again(
    bench: MakeBench, desk: Desk, simulator: Simulator, shop: Shop, customer: str
) -> None:
    """Put back to the moment before the read: the read is asked for as it was, and is done again."""
    one = bench(shop.handlers)
    one.read_objects = True
    one.run([told(customer, 0, "first"), told(customer, 1, "second")])
    with psycopg.connect(one.url) as other:
        other.execute("CREATE TABLE public.backup AS SELECT * FROM onceflow.object_read")
    desk.turn()
    with psycopg.connect(one.url) as other:
        other.execute("DELETE FROM onceflow.object_read")
        other.execute("INSERT INTO onceflow.object_read SELECT * FROM public.backup")
        other.execute("UPDATE onceflow.parked_key SET reason = 'reading', due_at = 'infinity'")
    desk.turn()
    one.redrive()
    assert names(one) == ["now"]
    assert simulator.reads(f"/v1/customers/{customer}") == 2
