"""Search: late, refused, and what a query means."""

from __future__ import annotations

import pytest
import stripe

from onceflow_simulator import Simulator
from onceflow_simulator.errors import StripeError
from onceflow_simulator.resources.searches import parse
from tests.simulator.asking import get, pay

OPERATION = "metadata['onceflow_operation']:'op_37'"
ITEM = {
    "id": "ch_1",
    "livemode": True,
    "amount": 500,
    "currency": "usd",
    "status": "succeeded",
    "created": 100,
    "metadata": {"a b": "c"},
}


def test_a_search_is_late_while_lists_and_ids_are_current(simulator: Simulator, client: stripe.StripeClient) -> None:
    simulator.stop_clock()
    simulator.set(search_lag_seconds=30)
    intent = pay(client, operation="op_37").id

    def found() -> list[str]:
        return [one.id for one in client.v1.payment_intents.search({"query": OPERATION}).data]

    assert found() == []
    assert client.v1.payment_intents.retrieve(intent).id == intent
    assert [one.id for one in client.v1.payment_intents.list({}).data] == [intent]
    simulator.advance(30)
    assert found() == [intent]


def test_a_search_is_refused(simulator: Simulator, client: stripe.StripeClient) -> None:
    simulator.set(search_refused=True)
    with pytest.raises(stripe.InvalidRequestError):
        client.v1.charges.search({"query": "amount>1"})


def test_there_is_no_search_of_refunds(simulator: Simulator) -> None:
    assert get(simulator.url, "/v1/refunds/search").status_code == 404


def test_pages(client: stripe.StripeClient) -> None:
    made = [pay(client).id for _ in range(5)][::-1]
    first = client.v1.payment_intents.search({"query": "status:'succeeded'", "limit": 2})
    assert ([one.id for one in first.data], first.has_more) == (made[:2], True)
    assert [one.id for one in first.auto_paging_iter()] == made


@pytest.mark.parametrize(
    ("query", "matches"),
    [
        ("status:'succeeded'", True),
        ('status:"failed"', False),
        ("-status:'failed'", True),
        ("amount>499 AND amount<=500", True),
        ("amount>500 OR currency:'usd'", True),
        ("metadata['a b']:'c'", True),
        ("metadata['a b']~'C'", True),
        ("metadata['x']:null", True),
        ("created>=101", False),
        ("metadata>1", False),
        ("livemode:'true'", True),
        ("-livemode:'false'", True),
    ],
)
def test_a_query(query: str, *, matches: bool) -> None:
    assert parse(query)(ITEM) is matches


@pytest.mark.parametrize(
    "query", ["", "status", "status:", "status:'a' status:'b'", "a:'1' AND b:'2' OR c:'3'", "a:'1"]
)
def test_no_query(query: str) -> None:
    with pytest.raises(StripeError):
        parse(query)
