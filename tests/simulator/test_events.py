"""Events: listed and retrieved, filtered, late, doubled, gone after thirty days, thin."""

from __future__ import annotations

from typing import Any

import pytest
import stripe

from onceflow_simulator import Simulator
from tests.simulator.asking import get, pay, types
from tests.simulator.conftest import Connect

DAY_SECONDS = 24 * 3600


def ids(client: stripe.StripeClient, **params: Any) -> list[str]:
    return [event.id for event in client.v1.events.list(params).data]  # type: ignore[arg-type]


def make_customers(client: stripe.StripeClient, count: int) -> None:
    for _ in range(count):
        client.v1.customers.create({})


def test_an_event_says_which_request_caused_it(client: stripe.StripeClient) -> None:
    intent = pay(client, key="k")
    event = client.v1.events.list({"type": "payment_intent.succeeded"}).data[0]
    assert event.request is not None
    assert (event.request.id, event.request.idempotency_key) == (intent.last_response.headers["Request-Id"], "k")
    assert (event.data.object["id"], event.data.object["status"]) == (intent.id, "succeeded")
    assert (event.livemode, event.api_version, event.pending_webhooks) == (False, "2026-10-28.endive", 0)
    assert "account" not in event.to_dict()


def test_an_event_keeps_the_object_as_it_was(client: stripe.StripeClient) -> None:
    customer = client.v1.customers.create({"email": "a@example.com"}).id
    client.v1.customers.update(customer, {"email": "b@example.com"})
    updated, created = client.v1.events.list({}).data
    assert created.data.object["email"] == "a@example.com"
    assert updated.data.object["email"] == "b@example.com"
    assert updated.data.previous_attributes is not None
    assert dict(updated.data.to_dict()["previous_attributes"]) == {"email": "a@example.com"}


def test_pages_both_ways(client: stripe.StripeClient) -> None:
    make_customers(client, 7)
    every = ids(client, limit=100)
    assert len(every) == 7
    assert ids(client, limit=3) == every[:3]
    assert ids(client, limit=3, starting_after=every[2]) == every[3:6]
    assert ids(client, limit=3, ending_before=every[5]) == every[2:5]
    oldest_first = client.v1.events.list({"limit": 2, "ending_before": every[-1]}).auto_paging_iter()
    assert [event.id for event in oldest_first] == every[-2::-1]
    assert [event.id for event in client.v1.events.list({"limit": 2}).auto_paging_iter()] == every


def test_new_events_shift_nothing_for_a_cursor(client: stripe.StripeClient) -> None:
    make_customers(client, 4)
    every = ids(client)
    first = ids(client, limit=2)
    make_customers(client, 3)
    assert first + ids(client, limit=2, starting_after=first[-1]) == every


def test_filters(simulator: Simulator, client: stripe.StripeClient) -> None:
    start = int(simulator.stop_clock(1_800_000_000))
    make_customers(client, 1)
    simulator.advance(10)
    pay(client)
    assert len(ids(client, type="payment_intent.*")) == 2
    assert len(ids(client, type="*.created")) == 2
    assert len(ids(client, types=["customer.created", "charge.succeeded"])) == 2
    assert len(ids(client, created={"gt": start})) == 3
    assert len(ids(client, created={"lte": start})) == 1
    assert len(ids(client, created=start + 10)) == 3
    assert len(ids(client, delivery_success=True)) == 4


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=101",
        "limit=ten",
        "type=a&types[]=b",
        "&".join(f"types[]=t{number}" for number in range(21)),
        "created[after]=1",
        "created[gte]=soon",
        "starting_after=evt_1&ending_before=evt_2",
        "colour=red",
        "delivery_success=perhaps",
    ],
)
def test_what_a_list_refuses(simulator: Simulator, query: str) -> None:
    answer = get(simulator.url, f"/v1/events?{query}")
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")


def test_twenty_types_are_allowed(simulator: Simulator) -> None:
    query = "&".join(f"types[]=t{number}" for number in range(20))
    assert get(simulator.url, f"/v1/events?{query}").status_code == 200


def test_thirty_days(simulator: Simulator, client: stripe.StripeClient) -> None:
    make_customers(client, 1)
    (old,) = ids(client)
    simulator.advance(20 * DAY_SECONDS)
    make_customers(client, 1)
    young = ids(client)[0]
    assert ids(client) == [young, old]
    simulator.advance(10 * DAY_SECONDS + 5)
    assert ids(client) == [young]
    with pytest.raises(stripe.InvalidRequestError) as gone:
        client.v1.events.retrieve(old)
    assert (gone.value.http_status, gone.value.code) == (404, "resource_missing")
    with pytest.raises(stripe.InvalidRequestError) as cursor:
        ids(client, ending_before=old)
    assert cursor.value.param == "ending_before"
    simulator.set(expired_cursor="empty")
    assert ids(client, ending_before=old) == []


def test_an_event_that_is_seen_late_is_behind_the_cursor(simulator: Simulator, client: stripe.StripeClient) -> None:
    simulator.stop_clock()
    make_customers(client, 2)
    simulator.set(event_lag_seconds=40)
    make_customers(client, 1)
    simulator.set(event_lag_seconds=0)
    make_customers(client, 2)
    seen = ids(client)
    assert len(seen) == 4
    simulator.advance(40)
    every = ids(client)
    assert len(every) == 5
    (late,) = set(every) - set(seen)
    assert every.index(late) == 2
    assert ids(client, ending_before=seen[0]) == []
    assert client.v1.events.retrieve(late).id == late


def test_a_share_of_the_events_is_late(simulator: Simulator, client: stripe.StripeClient) -> None:
    simulator.set(event_lag_seconds=40, event_lag_share=0.5)
    make_customers(client, 40)
    assert 5 < len(ids(client, limit=100)) < 35


def test_two_events_for_one_change(simulator: Simulator, client: stripe.StripeClient) -> None:
    simulator.set(event_twin_share=1)
    make_customers(client, 1)
    first, second = client.v1.events.list({}).data
    assert first.id != second.id
    assert (first.type, first.data.object["id"]) == (second.type, second.data.object["id"])


def test_an_event_of_a_connected_account(client: stripe.StripeClient, connect: Connect) -> None:
    connected = connect(account="acct_c1")
    make_customers(connected, 1)
    (event,) = connected.v1.events.list({}).data
    assert event.account == "acct_c1"
    assert types(client) == []
    with pytest.raises(stripe.InvalidRequestError) as unknown:
        client.v1.events.retrieve(event.id)
    assert (unknown.value.http_status, unknown.value.code) == (404, "resource_missing")
    assert client.v1.events.retrieve(event.id, {}, {"stripe_account": "acct_c1"}).id == event.id


def test_thin_events(client: stripe.StripeClient) -> None:
    intent = pay(client, key="k")
    snapshots = ids(client)
    thin = client.v2.core.events.list({"limit": 2})
    newest = thin.data[0]
    assert (newest.type, newest.to_dict()["snapshot_event"]) == ("v1.payment_intent.succeeded", snapshots[0])
    fetched = client.v2.core.events.retrieve(newest.id).to_dict()
    assert fetched["related_object"] == {
        "id": intent.id,
        "type": "payment_intent",
        "url": f"/v1/payment_intents/{intent.id}",
    }
    assert fetched["reason"]["request"]["idempotency_key"] == "k"
    assert len(list(thin.auto_paging_iter())) == 3


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=ten", "page=evt_test_1"])
def test_what_a_list_of_thin_events_refuses(simulator: Simulator, query: str) -> None:
    assert get(simulator.url, f"/v2/core/events?{query}").status_code == 400
