"""Numbers beyond 32 bits and texts that PostgreSQL cannot hold: processed, kept exactly, or one event in quarantine."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onceflow_processor.event import Event
from onceflow_processor.handlers import Handlers
from onceflow_processor.tx import Tx
from tests.processor.reports.stripe_events import MakeBench, records, told

UPDATED = "customer.subscription.updated"


def keeps_numbers() -> Handlers:
    handlers = Handlers()

    @handlers.on("invoiceitem.created", "charge.succeeded", order="latest")
    def keep(event: Event, tx: Tx) -> None:
        subject = event.object
        number = subject["quantity"] if "quantity" in subject else subject["amount"]
        tx.outcome("kept", key=subject["id"], data={"number": number, "created": int(event.created.timestamp())})
        tx.book("sum", subject["id"], total=number)

    return handlers


def test_numbers_of_64_bits_are_kept_and_longer_ones_cost_their_event(bench: MakeBench) -> None:
    one = bench(keeps_numbers())
    item, charge = {"object": "invoiceitem"}, {"object": "charge", "currency": "idr"}
    at_2100 = 4_102_444_800 - 1_767_225_600
    one.run(
        records(
            [
                told("evt_0", "invoiceitem.created", {"id": "ii_0", **item, "quantity": 13_580_246_790}),
                told("evt_1", "charge.succeeded", {"id": "ch_1", **charge, "amount": 9_999_999_900}),
                told("evt_2", "charge.succeeded", {"id": "ch_2", **charge, "amount": 5}, at=at_2100),
                told("evt_3", "charge.succeeded", {"id": "ch_3", **charge, "amount": 2**63}),
                told("evt_4", "invoiceitem.created", {"id": "ii_4", **item, "quantity": 2**63}),
                told("evt_5", "charge.succeeded", {"id": "ch_5", **charge, "amount": 2**63 - 1}),
            ]
        )
    )
    assert one.quarantine() == {3: "bad_amount", 4: "effect_refused"}
    rows = one.rows("SELECT key, value FROM onceflow.outcome")
    kept = {row["key"]: json.loads(bytes(row["value"])) for row in rows}
    assert {name: data["number"] for name, data in kept.items()} == {
        "ii_0": 13_580_246_790, "ch_1": 9_999_999_900, "ch_2": 5, "ch_5": 2**63 - 1,
    }  # fmt: skip
    assert kept["ch_2"]["created"] == 4_102_444_800
    totals = {row["key"]: row["total"] for row in one.rows("SELECT key, total FROM onceflow.booked")}
    assert totals == {name: data["number"] for name, data in kept.items()}


TEXTS = {
    "nul": ('"a\\u0000b"', "a\ufffdb"),
    "lone_high": ('"\\ud83d"', "\ufffd"),
    "lone_low": ('"x\\ude00"', "x\ufffd"),
    "emoji": ('"\\ud83d\\ude00 \U0001f600"', "\U0001f600 \U0001f600"),
    "harmless": ('"\\\\u0000"', "\\u0000"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_that_postgresql_cannot_hold(bench: MakeBench, name: str) -> None:
    """In a description, in metadata, in a key of it, in a status: the event is processed and its bytes are kept."""
    handlers, raws = Handlers(), list[tuple[bytes, bool]]()

    @handlers.on(UPDATED, order="latest")
    def keep(event: Event, tx: Tx) -> None:
        raws.append((event.raw, event.text_replaced))
        subject = event.object
        tx.outcome("kept", key=subject["id"], data={"text": subject["description"], "metadata": subject["metadata"]})
        tx.execute("INSERT INTO public.ledger (event_id, note) VALUES (%s, %s)", [event.id, subject["description"]])

    written, read = TEXTS[name]
    subject: dict[str, Any] = {
        "id": "sub_1",
        "object": "subscription",
        "status": "?",
        "description": "?",
        "metadata": {"?": "?"},
    }
    body = told("evt_1", UPDATED, subject).replace(b'"?"', written.encode())
    one = bench(handlers)
    one.run(records([body, told("evt_2", UPDATED, {**subject, "status": "active"}, at=5)]))
    assert one.states() == {"evt_1": "processed", "evt_2": "processed"}
    assert raws[0] == (body, "\ufffd" in read)
    [row] = one.rows("SELECT value FROM onceflow.outcome ORDER BY seq LIMIT 1")
    assert json.loads(bytes(row["value"])) == {"text": read, "metadata": {read: read}}
    assert one.rows("SELECT note FROM public.ledger WHERE event_id = 'evt_1'") == [{"note": read}]
    assert one.rows("SELECT status FROM onceflow.object_guard") == [{"status": "active"}]
