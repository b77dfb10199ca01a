"""The ledger of what really happened."""

from __future__ import annotations

from onceflow_simulator import Simulator
from onceflow_simulator.client import Ledger as LedgerReport
from onceflow_simulator.ledger import Entry, Ledger


def filled() -> Ledger:
    ledger = Ledger()
    for amount, metadata, key in (
        (500, {"onceflow_operation": "op_1", "order": "A"}, "k1"),
        (700, {"onceflow_operation": "op_1", "order": "B"}, "k2"),
        (900, {}, "k3"),
        (100, {}, None),
    ):
        ledger.record(
            Entry(
                at=1.0,
                account="acct_1",
                livemode=False,
                kind="charge",
                object=f"ch_{amount}",
                amount=amount,
                currency="usd",
                metadata=metadata,
                key=key,
            )
        )
    return ledger


def test_counted_by_operation_else_by_key() -> None:
    report = LedgerReport(filled().report())
    assert (report.count("charge"), report.amount("charge")) == (4, 2200)
    assert (report.count("charge", "op_1"), report.amount("charge", "op_1")) == (2, 1200)
    assert (report.count("charge", "k3"), report.count("charge", "")) == (1, 1)
    assert report.doubled("charge") == ["op_1"]
    assert report.count("refund") == 0
    assert filled().report()["totals"] == {"charge": {"count": 4, "amounts": {"usd": 2200}}}


def test_counted_by_other_metadata() -> None:
    report = LedgerReport(filled().report(by="order", entries=False))
    assert (report.count("charge", "A"), report.count("charge", "B"), report.count("charge", "")) == (1, 1, 2)
    assert report.entries == []


def test_a_request_cannot_write_it(simulator: Simulator) -> None:
    before = simulator.ledger().report
    simulator.call("GET", "/ledger")
    assert simulator.ledger().report == before == {"counts": [], "totals": {}, "entries": []}
