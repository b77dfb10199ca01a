"""Webhooks: real signatures, tried until 2xx, doubled, late, swapped, dropped, thin besides."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import stripe

from onceflow_simulator import Simulator
from onceflow_simulator.client import wait_until
from tests.simulator.asking import pay
from tests.simulator.conftest import Connect
from tests.simulator.receiver import Receiver

SECRET, NEXT_SECRET = "whsec_first", "whsec_second"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running


def wait_for(receiver: Receiver, count: int, *, timeout_seconds: float = 10.0) -> None:
    wait_until(lambda: len(receiver.received) >= count, f"{count} deliveries", timeout_seconds=timeout_seconds)


def types_of(receiver: Receiver) -> list[str]:
    return [json.loads(one.body)["type"] for one in receiver.received]


def test_signatures_are_stripes(simulator: Simulator, client: stripe.StripeClient, receiver: Receiver) -> None:
    simulator.add_webhook(receiver.url, secrets=[SECRET])
    pay(client, key="k")
    wait_for(receiver, 3)
    simulator.wait_delivered()
    events = [client.construct_event(one.body, one.signature, SECRET) for one in receiver.received]
    assert {event.type for event in events} == {
        "payment_intent.created",
        "charge.succeeded",
        "payment_intent.succeeded",
    }
    assert {event.request.idempotency_key for event in events if event.request} == {"k"}
    assert {event.id for event in events} == {event.id for event in client.v1.events.list({}).data}


@pytest.mark.parametrize("days", [-2, 2])
def test_a_moved_clock_makes_no_signature_stale(
    days: int, simulator: Simulator, client: stripe.StripeClient, receiver: Receiver
) -> None:
    simulator.add_webhook(receiver.url, secrets=[SECRET])
    simulator.advance(days * 86_400)
    client.v1.customers.create({})
    wait_for(receiver, 1)
    (one,) = receiver.received
    # Stripe's library looks at old signatures only, the bridge at future ones too.
    assert int(one.signature.removeprefix("t=").split(",")[0]) == pytest.approx(time.time(), abs=60)
    event = client.construct_event(one.body, one.signature, SECRET, tolerance=60)
    assert event.created == pytest.approx(time.time() + days * 86_400, abs=60)


def test_two_signatures_while_a_secret_is_rolled(
    simulator: Simulator, client: stripe.StripeClient, receiver: Receiver
) -> None:
    endpoint = simulator.add_webhook(receiver.url, secrets=[SECRET])
    simulator.change_webhook(endpoint, secrets=[SECRET, NEXT_SECRET])
    client.v1.customers.create({})
    wait_for(receiver, 1)
    (one,) = receiver.received
    assert one.signature.count("v1=") == 2
    for secret in (SECRET, NEXT_SECRET):
        assert client.construct_event(one.body, one.signature, secret).type == "customer.created"


def test_tried_again_until_2xx_signed_anew(
    simulator: Simulator, client: stripe.StripeClient, receiver: Receiver
) -> None:
    receiver.answer = lambda number: [500, 302, 204][number - 1]
    simulator.stop_clock()
    simulator.add_webhook(receiver.url, secrets=[SECRET])
    client.v1.customers.create({})
    wait_for(receiver, 1)
    (failed,) = client.v1.events.list({"delivery_success": False}).data
    assert failed.pending_webhooks == 1
    for count, pause_seconds in ((2, 60), (3, 300)):
        wait_until(lambda: simulator.state()["planned"] == 1, "the next try is planned", timeout_seconds=5)
        # A signature is dated in whole seconds of the real clock, so the next one differs in the next second.
        sent_at = int(time.time())
        wait_until(lambda: int(time.time()) > sent_at, "another second has begun", timeout_seconds=5)  # noqa: B023
        simulator.advance(pause_seconds)
        wait_for(receiver, count)
    simulator.wait_delivered()
    attempts = simulator.deliveries()
    assert [(one["attempt"], one["status"]) for one in attempts] == [(1, 500), (2, 302), (3, 204)]
    assert [later["at"] - one["at"] for one, later in itertools.pairwise(attempts)] == [60, 300]
    assert len({one.signature for one in receiver.received}) == 3
    assert len({json.loads(one.body)["id"] for one in receiver.received}) == 1
    assert client.v1.events.list({"delivery_success": False}).data == []


def test_given_up_in_the_end(simulator: Simulator, client: stripe.StripeClient, receiver: Receiver) -> None:
    receiver.answer = lambda _number: 503
    simulator.add_webhook(receiver.url, secrets=[SECRET], retries_max=2, retry_scale=0)
    client.v1.customers.create({})
    wait_for(receiver, 3)
    simulator.wait_delivered()
    assert len(receiver.received) == 3
    assert len(client.v1.events.list({"delivery_success": False}).data) == 1


def test_nobody_is_there(simulator: Simulator, client: stripe.StripeClient) -> None:
    simulator.add_webhook("http://127.0.0.1:9/nowhere", secrets=[SECRET], retries_max=0)
    client.v1.customers.create({})
    simulator.wait_delivered()
    (attempt,) = simulator.deliveries()
    assert (attempt["status"], "ConnectionRefusedError" in attempt["error"]) == (None, True)


def test_a_webhook_overtakes_the_answer(simulator: Simulator, client: stripe.StripeClient, receiver: Receiver) -> None:
    simulator.add_webhook(receiver.url, secrets=[SECRET], types=["payment_intent.succeeded"])
    simulator.faults.add("slow", answer_ms=1500)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(pay, client, key="k")
        wait_for(receiver, 1)
        assert not asked.done()
        assert asked.result(10).id == json.loads(receiver.received[0].body)["data"]["object"]["id"]


def test_an_endpoint_that_goes_away_leaves_nothing_waiting(
    simulator: Simulator, client: stripe.StripeClient, receiver: Receiver
) -> None:
    endpoint = simulator.add_webhook(receiver.url, secrets=[SECRET])
    receiver.answer = lambda _number: 500
    client.v1.customers.create({})
    wait_for(receiver, 1)
    client.v1.webhook_endpoints.delete(endpoint)
    simulator.advance(7200)
    simulator.wait_delivered()
    assert len(receiver.received) == 1


def test_doubled(simulator: Simulator, client: stripe.StripeClient, receiver: Receiver) -> None:
    simulator.add_webhook(receiver.url, secrets=[SECRET], duplicate=1)
    client.v1.customers.create({})
    wait_for(receiver, 2)
    first, second = receiver.received
    assert json.loads(first.body)["id"] == json.loads(second.body)["id"]


def test_dropped_for_ever_and_still_listed(
    simulator: Simulator, client: stripe.StripeClient, receiver: Receiver
) -> None:
    simulator.add_webhook(receiver.url, secrets=[SECRET], drop=0.5)
    for _ in range(40):
        client.v1.customers.create({})
    simulator.wait_delivered()
    dropped = simulator.call("GET", "/webhooks")["endpoints"][0]["dropped"]
    assert 5 < len(dropped) < 35
    assert len(receiver.received) == 40 - len(dropped)
    undelivered = [event.id for event in client.v1.events.list({"limit": 100, "delivery_success": False}).data]
    assert sorted(undelivered) == sorted(dropped)


def test_days_late_and_swapped(simulator: Simulator, client: stripe.StripeClient, receiver: Receiver) -> None:
    simulator.stop_clock()
    simulator.add_webhook(receiver.url, secrets=[SECRET], delay_seconds=2 * 24 * 3600, reorder=1, reorder_seconds=600)
    made = [client.v1.customers.create({}).id for _ in range(12)]
    simulator.advance(2 * 24 * 3600 - 1)
    assert receiver.received == []
    for _ in range(61):
        simulator.advance(10)
    wait_for(receiver, 12)
    arrived = [json.loads(one.body)["data"]["object"]["id"] for one in receiver.received]
    assert sorted(arrived) == sorted(made)
    assert arrived != made


def test_thin_besides_the_snapshot(simulator: Simulator, client: stripe.StripeClient, receiver: Receiver) -> None:
    simulator.add_webhook(receiver.url, secrets=[SECRET], thin=True)
    customer = client.v1.customers.create({}).id
    wait_for(receiver, 2)
    thin = next(one for one in receiver.received if json.loads(one.body)["object"] == "v2.core.event")
    note = client.parse_event_notification(thin.body, thin.signature, SECRET)
    assert (note.type, note.related_object.id) == ("v1.customer.created", customer)  # type: ignore[union-attr]
    fetched = note.fetch_event()
    assert fetched.to_dict()["snapshot_event"] == client.v1.events.list({}).data[0].id


def test_chosen_types_version_and_a_disabled_endpoint(
    simulator: Simulator, client: stripe.StripeClient, receiver: Receiver
) -> None:
    endpoint = simulator.add_webhook(receiver.url, secrets=[SECRET], types=["customer.*"], api_version="2024-06-20")
    pay(client)
    client.v1.customers.create({})
    wait_for(receiver, 1)
    simulator.wait_delivered()
    assert types_of(receiver) == ["customer.created"]
    assert json.loads(receiver.received[0].body)["api_version"] == "2024-06-20"
    assert client.v1.events.list({}).data[0].api_version == "2026-10-28.endive"
    simulator.change_webhook(endpoint, enabled=False)
    client.v1.customers.create({})
    assert client.v1.webhook_endpoints.retrieve(endpoint).status == "disabled"
    simulator.wait_delivered()
    assert len(receiver.received) == 1


def test_connected_accounts_have_endpoints_of_their_own(
    simulator: Simulator, client: stripe.StripeClient, connect: Connect, receiver: Receiver
) -> None:
    simulator.add_webhook(receiver.url, secrets=["whsec_own"])
    simulator.add_webhook(receiver.url, secrets=["whsec_connect"], connect=True)
    connect(account="acct_c1").v1.customers.create({})
    wait_for(receiver, 1)
    event = client.construct_event(receiver.received[0].body, receiver.received[0].signature, "whsec_connect")
    assert event.account == "acct_c1"
    client.v1.customers.create({})
    wait_for(receiver, 2)
    own = client.construct_event(receiver.received[1].body, receiver.received[1].signature, "whsec_own")
    assert "account" not in own.to_dict()


def test_endpoints_through_stripes_interface(client: stripe.StripeClient, receiver: Receiver) -> None:
    made = client.v1.webhook_endpoints.create({"url": receiver.url, "enabled_events": ["*"]})
    assert made.secret is not None
    (listed,) = client.v1.webhook_endpoints.list({}).data
    assert (listed.id, listed.url, listed.status) == (made.id, receiver.url, "enabled")
    assert "secret" not in listed.to_dict()
    client.v1.customers.create({})
    wait_for(receiver, 1)
    one = receiver.received[0]
    assert client.construct_event(one.body, one.signature, made.secret).type == "customer.created"
    client.v1.webhook_endpoints.update(made.id, {"disabled": True})
    assert client.v1.webhook_endpoints.retrieve(made.id).status == "disabled"
    client.v1.webhook_endpoints.delete(made.id)
    assert client.v1.webhook_endpoints.list({}).data == []


def test_an_endpoint_is_one_thing_however_it_is_changed(simulator: Simulator, client: stripe.StripeClient) -> None:
    endpoint = simulator.add_webhook("http://127.0.0.1:9/", secrets=[SECRET])
    client.v1.webhook_endpoints.update(endpoint, {"disabled": True, "enabled_events": ["charge.captured"]})
    simulator.change_webhook(endpoint, drop=0.5)
    shown = client.v1.webhook_endpoints.retrieve(endpoint)
    assert (shown.status, shown.enabled_events) == ("disabled", ["charge.captured"])
    (knobs,) = simulator.call("GET", "/webhooks")["endpoints"]
    told = {name: knobs[name] for name in ("account", "livemode", "enabled", "types", "drop")}
    assert told == {
        "account": "acct_simulator",
        "livemode": False,
        "enabled": False,
        "types": ["charge.captured"],
        "drop": 0.5,
    }
    simulator.call("DELETE", f"/webhooks/{endpoint}")
    assert client.v1.webhook_endpoints.list({}).data == []


def test_an_event_is_sent_again(simulator: Simulator, client: stripe.StripeClient, receiver: Receiver) -> None:
    endpoint = simulator.add_webhook(receiver.url, secrets=[SECRET])
    client.v1.customers.create({})
    wait_for(receiver, 1)
    event = client.v1.events.list({}).data[0].id
    client.raw_request("post", f"/v1/events/{event}/retry", webhook_endpoint=endpoint)
    wait_for(receiver, 2)
    assert [json.loads(one.body)["id"] for one in receiver.received] == [event, event]
