"""Lists of lines that events cut off: read whole for handlers that ask for them, and only for those (R29)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onceflow import Event, Handlers, Tx
from onceflow_schemas import object_reads
from onceflow_simulator import Simulator
from tests.processor.conftest import Bench, event_body, record
from tests.processor.reads.conftest import Desk
from tests.processor.reads.stripe_side import client_of, long_invoice

MakeBench = Callable[[Handlers], Bench]
VERSION = "2026-10-28.endive"


class Books:
    """One handler that sums lines, and one that takes what is paid."""

    def __init__(self) -> None:
        self.handlers = Handlers()
        self.sums: list[tuple[int, int, bool]] = []
        self.paid: list[tuple[int, bool]] = []

        @self.handlers.on("invoice.paid", lines="all")
        def sum_lines(event: Event, _tx: Tx) -> None:
            lines = event.object["lines"]["data"]
            self.sums.append((len(lines), sum(line["amount"] for line in lines), event.lines_truncated))

        @self.handlers.on("invoice.paid")
        def take_paid(event: Event, tx: Tx) -> None:
            self.paid.append((event.object["amount_paid"], event.lines_truncated))
            tx.outcome("paid", key=event.object["id"], data={"amount": event.object["amount_paid"]})


@pytest.fixture
def books() -> Books:
    return Books()


def paid(simulator: Simulator, *, lines: int) -> bytes:
    """R29's event: 37 lines of which ten are shown."""
    invoice = long_invoice(client_of(simulator), lines=lines)
    shown = [{"id": f"il_{n}_{invoice.id}", "object": "line_item", "amount": 1000} for n in range(min(lines, 10))]
    subject = {
        "id": invoice.id,
        "object": "invoice",
        "amount_paid": lines * 1000,
        "lines": {
            "object": "list",
            "has_more": lines > 10,
            "total_count": lines,
            "data": shown,
            "url": f"/v1/invoices/{invoice.id}/lines",
        },
    }
    return event_body("evt_paid", "invoice.paid", subject, api_version=VERSION)


def test_all_lines_are_met_by_who_asks_for_them(
    bench: MakeBench, desk: Desk, simulator: Simulator, books: Books
) -> None:
    one = bench(books.handlers)
    one.read_objects = True
    one.run([record(paid(simulator, lines=37), 0)])
    assert (one.states(), books.sums, books.paid) == ({"evt_paid": "parked"}, [], [])
    desk.turn()
    one.redrive()
    assert one.states() == {"evt_paid": "processed"}
    assert books.sums == [(37, 37_000, False)]
    assert books.paid == [(37_000, True)]
    assert len(one.outcomes()) == 1


def test_a_short_list_is_met_at_once(bench: MakeBench, desk: Desk, simulator: Simulator, books: Books) -> None:
    one = bench(books.handlers)
    one.read_objects = True
    one.run([record(paid(simulator, lines=10), 0)])
    assert (books.sums, desk.rows()) == ([(10, 10_000, False)], {})


def test_without_the_setting_the_marker_says_so(
    bench: MakeBench, desk: Desk, simulator: Simulator, books: Books
) -> None:
    one = bench(books.handlers)
    one.run([record(paid(simulator, lines=37), 0)])
    assert (books.sums, books.paid, desk.rows()) == ([(10, 10_000, True)], [(37_000, True)], {})


def test_too_many_lines_are_met_with_the_marker(
    bench: MakeBench, desk: Desk, simulator: Simulator, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_reads, "PAGES_MAX", 2)
    monkeypatch.setattr(object_reads, "PAGE_LINES", 10)
    one = bench(books.handlers)
    one.read_objects = True
    one.run([record(paid(simulator, lines=37), 0)])
    desk.turn()
    desk.turn()
    one.redrive()
    assert one.states() == {"evt_paid": "processed"}
    assert books.sums == [(10, 10_000, True)]
    [row] = desk.rows().values()
    assert (row["result"], row["code"]) == ("incomplete", "too_many_lines")


def test_an_invoice_that_is_gone_is_met_with_the_marker(
    bench: MakeBench, desk: Desk, simulator: Simulator, books: Books
) -> None:
    body = paid(simulator, lines=37)
    invoice = client_of(simulator).v1.invoices.list({}).data[0].id
    assert invoice is not None
    client_of(simulator).v1.invoices.delete(invoice)
    one = bench(books.handlers)
    one.read_objects = True
    one.run([record(body, 0)])
    desk.turn()
    one.redrive()
    assert books.sums == [(10, 10_000, True)]
