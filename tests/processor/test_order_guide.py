"""What the guides to order and shapes show does what the pages say, on a real database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg

from tests.docs.test_guides import PYTHON
from tests.processor.conftest import Bench
from tests.processor.reports.stripe_events import MakeBench, records, told

GUIDES = Path(__file__).parents[2] / "docs" / "guides"


def guide(bench: MakeBench, page: str) -> Bench:
    """A bench over the handlers of a page."""
    names: dict[str, Any] = {}
    for block in PYTHON.findall((GUIDES / page).read_text("utf-8")):
        exec(compile(block, page, "exec"), names)  # noqa: S102 - the page is ours, and this is its test.
    one = bench(names["handlers"])
    with psycopg.connect(one.url, autocommit=True) as setup:
        setup.execute("CREATE TABLE public.subscription (id text PRIMARY KEY, status text)")
    return one


def data_of(one: Bench, kind: str) -> list[Any]:
    rows = one.rows("SELECT value FROM onceflow.outcome WHERE type = %s ORDER BY created_at, seq", kind)
    return [json.loads(bytes(row["value"])) for row in rows]


def test_state_and_recovery(bench: MakeBench) -> None:
    one = guide(bench, "order.md")
    subject = {"id": "sub_1", "object": "subscription"}
    updated = "customer.subscription.updated"
    recovered = {"before": {"status": "past_due"}, "request": {"id": "req_1"}}
    one.run(
        records(
            [
                told("evt_3", updated, {**subject, "status": "active"}, at=3, **recovered),
                told("evt_2", updated, {**subject, "status": "past_due"}, at=2, before={"status": "active"}),
                told("evt_4", updated, {**subject, "status": "active"}, at=3, **recovered),
            ]
        )
    )
    assert one.rows("SELECT * FROM public.subscription") == [{"id": "sub_1", "status": "active"}]
    assert data_of(one, "subscription.recovered") == [{"subscription": "sub_1"}]


def test_one_credit_and_who_else_told_it(bench: MakeBench) -> None:
    one = guide(bench, "order.md")
    one.run(
        records(
            [
                told("evt_1", "charge.succeeded", {"id": "ch_7", "object": "charge", "payment_intent": "pi_7"}),
                told("evt_2", "payment_intent.succeeded", {"id": "pi_7", "object": "payment_intent"}),
            ]
        )
    )
    assert data_of(one, "customer.credited") == [{"payment_intent": "pi_7", "event": "evt_1"}]
    claims = one.rows("SELECT cause FROM onceflow.fact_claim WHERE namespace = 'credit' AND key = 'pi_7'")
    assert [row["cause"].rpartition("/")[2] for row in claims] == ["evt_2"]


def test_refunds_are_reversed_once(bench: MakeBench) -> None:
    one = guide(bench, "order.md")
    bodies = [
        told(
            f"evt_{sum_}",
            "charge.refunded",
            {"id": "ch_1", "object": "charge", "amount": 2500, "amount_refunded": sum_},
        )
        for sum_ in (1500, 1000, 2500)
    ]
    one.run(records([*bodies, *bodies]))
    assert data_of(one, "charge.reversed") == [{"amount": 1500, "full": False}, {"amount": 1000, "full": True}]


def test_a_paid_subscription_in_every_shape(bench: MakeBench) -> None:
    one = guide(bench, "shapes.md")
    places: list[dict[str, Any]] = [
        {"subscription": "sub_1", "customer": "cus_1"},
        {
            "parent": {"subscription_details": {"subscription": "sub_1"}},
            "customer": {"id": "cus_1", "object": "customer"},
        },
        {"subscription": None, "customer": "cus_1"},
    ]
    lines = {"has_more": False, "data": []}
    bodies = [
        told(
            f"evt_{n}",
            "invoice.paid",
            {"id": f"in_{n}", "object": "invoice", "amount_paid": 5, "lines": lines, **place},
        )
        for n, place in enumerate(places)
    ]
    one.run(records(bodies))
    assert data_of(one, "subscription.paid") == [{"customer": "cus_1", "amount": 5, "lines_complete": True}] * 2
