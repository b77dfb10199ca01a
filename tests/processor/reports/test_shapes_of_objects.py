"""Old and new shapes, absent and expanded fields, cut-off lines: one outcome for one meaning, and what is absent shows."""

from __future__ import annotations

import gc
import json
import resource
import time
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from onceflow import shapes
from onceflow_processor.event import Event
from onceflow_processor.handlers import Handlers
from onceflow_processor.tx import Tx
from onceflow_processor.version_log import VersionLog
from tests.processor.conftest import Bench
from tests.processor.reports.stripe_events import T0, MakeBench, records, told

OLD, NEW = "2024-06-20", "2025-03-31.basil"
PERIOD = {"current_period_start": T0, "current_period_end": T0 + 2_678_400}
SUBSCRIPTION = {"id": "sub_1", "object": "subscription", "status": "active", "customer": "cus_1"}


def periods() -> Handlers:
    handlers = Handlers()

    @handlers.on("customer.subscription.updated", order="latest")
    def period(event: Event, tx: Tx) -> None:
        found = shapes.current_period(event.object)
        end = None if found.value is None else found.value.end
        tx.outcome("period", key=event.object["id"], data={"end": end, "problem": found.problem})

    @handlers.on("invoice.paid")
    def paid(event: Event, tx: Tx) -> None:
        found = shapes.subscription(event.object)
        tx.outcome("paid", key=event.object["id"], data={"subscription": found.value, "problem": found.problem})

    return handlers


def data_of(one: Bench) -> list[Any]:
    return [
        json.loads(bytes(row["value"]))
        for row in one.rows("SELECT value FROM onceflow.outcome ORDER BY created_at, seq")
    ]


def period_told(*, items: Any = None, top: dict[str, Any] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {**SUBSCRIPTION, **(top or {})}
    return found if items is None else {**found, "items": {"object": "list", "data": items, "has_more": False}}


@pytest.mark.parametrize(
    ("version", "subject", "expected"),
    [
        (OLD, period_told(top=PERIOD, items=[{"id": "si_1"}]), (T0 + 2_678_400, None)),
        (NEW, period_told(items=[{"id": "si_1", **PERIOD}]), (T0 + 2_678_400, None)),
        (NEW, period_told(items=[{"id": "si_1", **PERIOD}, {"id": "si_2", **PERIOD}]), (T0 + 2_678_400, None)),
        (
            NEW,
            period_told(items=[{"id": "si_1", **PERIOD}, {"id": "si_2", **PERIOD, "current_period_end": T0 + 9}]),
            (None, "differs"),
        ),
        (NEW, period_told(items=[{"id": "si_1"}]), (None, "missing")),
        ("2031-01-01.future", period_told(items=[{"id": "si_1", **PERIOD}]), (T0 + 2_678_400, None)),
    ],
)
def test_a_period_is_the_same_in_every_shape(
    bench: MakeBench, version: str, subject: dict[str, Any], expected: tuple[int | None, str | None]
) -> None:
    one = bench(periods())
    one.run(records([told("evt_1", "customer.subscription.updated", subject, api_version=version)]))
    assert data_of(one) == [{"end": expected[0], "problem": expected[1]}]
    [row] = one.rows("SELECT api_version FROM onceflow.inbox")
    assert row["api_version"] == version


def test_both_shapes_of_an_invoice_name_its_subscription(bench: MakeBench) -> None:
    one = bench(periods())
    parents: list[dict[str, Any]] = [
        {"subscription": "sub_1"},
        {"parent": {"type": "subscription_details", "subscription_details": {"subscription": "sub_1"}}},
        {"subscription": None},
        {},
    ]
    for n, parent in enumerate(parents):
        one.run(records([told(f"evt_{n}", "invoice.paid", {"id": f"in_{n}", "object": "invoice", **parent})], first=n))
    assert data_of(one) == [
        {"subscription": "sub_1", "problem": None},
        {"subscription": "sub_1", "problem": None},
        {"subscription": None, "problem": "null"},
        {"subscription": None, "problem": "missing"},
    ]


def test_unknown_versions_are_counted_and_told_once(bench: MakeBench) -> None:
    one = bench(periods())
    versions = [OLD, "2031-01-01.future", "2031-01-01.future", None]
    end = one.run(
        records(
            [
                told(f"evt_{n}", "invoice.paid", {"id": f"in_{n}", "object": "invoice"}, api_version=version)
                for n, version in enumerate(versions)
            ]
        )
    )
    assert end.counts[0].unknown_versions == {"2031-01-01.future": 2}
    with capture_logs() as lines:
        told_once = VersionLog()
        for _ in range(3):
            told_once.tell(end.counts[0].unknown_versions)
    assert len(lines) == 1
    assert set(one.states().values()) == {"processed"}


def test_absent_and_expanded_fields_break_nothing(bench: MakeBench) -> None:
    """Guests, detached methods, expanded objects, old forms of ``request``, fields that nobody knows."""
    handlers = Handlers()

    @handlers.on("charge.succeeded", "checkout.session.completed", "payment_method.automatically_updated", name="all")
    def look(event: Event, tx: Tx) -> None:
        customer = shapes.customer(event.object)
        tx.outcome(
            "seen",
            key=event.object["id"],
            data={
                "customer": customer.value,
                "problem": customer.problem,
                "intent": shapes.payment_intent(event.object).value,
                "request": event.request_id,
                "email": event.object.get("customer_email"),
            },
        )

    one = bench(handlers)
    charge = {"object": "charge", "amount": 500, "metadata": None, "payment_intent": None}
    bodies = [
        told("evt_0", "charge.succeeded", {"id": "ch_0", **charge, "customer": None}),
        told("evt_1", "checkout.session.completed", {"id": "cs_1", "object": "checkout.session", "customer": "cus_1"}),
        told(
            "evt_2",
            "payment_method.automatically_updated",
            {"id": "pm_2", "object": "payment_method", "customer": None, "of_the_future": {"a": [None]}},
        ),
        told("evt_3", "charge.succeeded", {"id": "ch_3", **charge, "customer": {"id": "cus_1", "object": "customer"}}),
        told("evt_4", "charge.succeeded", {"id": "ch_4", **charge}, request=None, odd_field=5),
        told("evt_5", "charge.succeeded", {"id": "ch_5", **charge, "customer": "cus_1"}, request="req_1"),
        told("evt_6", "charge.succeeded", {"id": "ch_6", **charge, "customer": "cus_1"}, request={"id": "req_2"}),
    ]
    for n, body in enumerate(bodies):
        one.run(records([body], first=n))
    seen = data_of(one)
    assert [(row["customer"], row["problem"]) for row in seen] == [
        (None, "null"), ("cus_1", None), (None, "null"), ("cus_1", None), (None, "missing"), ("cus_1", None), ("cus_1", None),
    ]  # fmt: skip
    assert [row["request"] for row in seen] == [None] * 5 + ["req_1", "req_2"]
    assert {(row["intent"], row["email"]) for row in seen} == {(None, None)}


def test_a_handler_that_cannot_do_without_a_field_costs_its_own_event(bench: MakeBench) -> None:
    handlers = Handlers()

    @handlers.on("charge.succeeded")
    def need(event: Event, tx: Tx) -> None:
        tx.outcome("paid", key=event.object["customer"], data={})

    one = bench(handlers)
    charge = {"object": "charge", "amount": 500}
    one.run(
        records(
            [
                told("evt_1", "charge.succeeded", {"id": "ch_1", **charge}),
                told("evt_2", "charge.succeeded", {"id": "ch_2", **charge, "customer": "cus_1"}),
            ]
        )
    )
    assert one.outcomes() == [("paid", "cus_1")]
    [row] = one.rows("SELECT detail, event_id FROM onceflow.quarantine")
    assert (row["event_id"], row["detail"]) == ("evt_1", "KeyError: 'customer'")


def invoice_with(shown: int, *, total: int, amount: int) -> dict[str, Any]:
    taxes = [
        {"amount": 1, "taxability_reason": "standard_rated", "tax_details": {"rate": f"txr_{n}"}} for n in range(2)
    ]
    lines = [{"id": f"il_{n}", "object": "line_item", "amount": 1000, "taxes": taxes} for n in range(shown)]
    return {
        "id": "in_37",
        "object": "invoice",
        "amount_paid": amount,
        "lines": {"has_more": shown < total, "total_count": total, "data": lines, "url": "/v1/invoices/in_37/lines"},
    }


def books_money() -> Handlers:
    handlers = Handlers()

    @handlers.on("invoice.paid", order="latest")
    def paid(event: Event, tx: Tx) -> None:
        amount, lines = event.object["amount_paid"], shapes.lines(event.object)
        data = {
            "amount": amount,
            "complete": not event.lines_truncated,
            "shown": len(lines.items),
            "of": lines.total_count,
        }
        tx.outcome("paid", key=event.object["id"], data=data)

    return handlers


def test_cut_off_lines_are_marked_and_money_is_what_was_paid(bench: MakeBench) -> None:
    one = bench(books_money())
    one.run(records([told("evt_1", "invoice.paid", invoice_with(10, total=37, amount=37_000))]))
    assert data_of(one) == [{"amount": 37_000, "complete": False, "shown": 10, "of": 37}]


WARM_UP = 10
HANDLED_SECONDS_MAX = 10.0
"""Far below the poll interval of 300 s, though the machine may be busy."""


def resident_bytes() -> int:
    """What the process holds now; its peak may be of another test."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_thousands_of_lines_are_handled_quickly_and_leave_no_memory_behind(bench: MakeBench) -> None:
    body = told("evt_{n:04d}", "invoice.paid", invoice_with(5_000, total=5_000, amount=5_000_000))
    assert len(body) > 900_000
    one = bench(books_money())
    seconds, before = list[float](), 0
    for n in range(WARM_UP + 30):
        if n == WARM_UP:
            before = resident_bytes()
        batch = records([body.replace(b"evt_{n:04d}", b"evt_%04d" % n).replace(b"in_37", b"in_%02d" % n)], first=n)
        begun = time.monotonic()
        one.run(batch)
        seconds.append(time.monotonic() - begun)
    assert resident_bytes() - before < 16 * 2**20
    assert max(seconds) < HANDLED_SECONDS_MAX
    assert len(data_of(one)) == WARM_UP + 30
    assert data_of(one)[0] == {"amount": 5_000_000, "complete": True, "shown": 5_000, "of": 5_000}
