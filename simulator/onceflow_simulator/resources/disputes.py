"""Disputes: a customer takes money back through the bank; won, lost, or an inquiry before any money leaves.

Rule: the status says who has the money; events may come in any order.
"""

from __future__ import annotations

from onceflow_simulator.books import Books
from onceflow_simulator.errors import invalid
from onceflow_simulator.listing import lister
from onceflow_simulator.resources.plain import apply, retriever
from onceflow_simulator.routes import Call, Routes
from onceflow_simulator.validation import LIST
from onceflow_simulator.world import Json

KIND = "dispute"
RESPONSE_SECONDS = 7 * 24 * 3600
FEE = 1500
_ENDED = frozenset({"won", "lost", "warning_closed"})


def add_routes(routes: Routes) -> None:
    """Add the resource's addresses."""
    filters = {"charge": "charge", "payment_intent": "payment_intent"}
    routes.get("/v1/disputes", lister(KIND, filters), spec=LIST)
    routes.get("/v1/disputes/{id}", retriever(KIND))
    routes.post("/v1/disputes/{id}", update)
    routes.post("/v1/disputes/{id}/close", close)


def open_dispute(books: Books, charge: Json, *, reason: str, amount: int | None = None) -> Json:
    """Open a dispute of a charge; all but an inquiry take the money at once."""
    inquiry = reason == "inquiry"
    body = books.new(
        KIND,
        prefix="du",
        fields={
            "amount": charge["amount"] if amount is None else amount,
            "balance_transactions": [],
            "charge": charge["id"],
            "currency": charge["currency"],
            "evidence": {},
            "evidence_details": {"due_by": books.now + RESPONSE_SECONDS, "has_evidence": False, "submission_count": 0},
            "is_charge_refundable": inquiry,
            "metadata": {},
            "payment_intent": charge["payment_intent"],
            "reason": "fraudulent" if inquiry else reason,
            "status": "warning_needs_response" if inquiry else "needs_response",
        },
    )
    charge["disputed"] = True
    books.emit("charge.dispute.created", body)
    if not inquiry:
        books.record("dispute", body, amount=body["amount"], parent=charge["id"])
        _move(books, body, amount=-body["amount"], fee=FEE)
        books.emit("charge.dispute.funds_withdrawn", body)
    return body


def update(call: Call) -> Json:
    """Change metadata, or answer with evidence."""
    body = call.books.get(KIND, call.ids[0])
    params = {name: value for name, value in call.params.items() if name != "submit"}
    previous = apply(body, params)
    if call.params.get("submit") == "true" and body["status"] not in _ENDED:
        previous["status"] = body["status"]
        body["status"] = "warning_under_review" if body["status"].startswith("warning") else "under_review"
    call.books.emit("charge.dispute.updated", body, previous=previous)
    return body


def close(call: Call) -> Json:
    """Give in: the dispute is lost.

    Raises:
        StripeError: 400, it has ended before.
    """
    return ended(call.books, call.books.get(KIND, call.ids[0]), won=False)


def ended(books: Books, body: Json, *, won: bool) -> Json:
    """The bank has decided; a won dispute gives the money back.

    Raises:
        StripeError: 400, it has ended before.
    """
    if body["status"] in _ENDED:
        raise invalid("This dispute is already closed", code="dispute_already_closed")
    inquiry = body["status"].startswith("warning")
    good = "warning_closed" if inquiry else "won"
    body["status"] = good if won else "lost"
    books.emit("charge.dispute.closed", body)
    if won and not inquiry:
        _move(books, body, amount=body["amount"], fee=-FEE)
        books.emit("charge.dispute.funds_reinstated", body)
    return body


def _move(books: Books, body: Json, *, amount: int, fee: int) -> None:
    body["balance_transactions"].append(
        {
            "id": books.world.ids.new("txn"),
            "object": "balance_transaction",
            "amount": amount,
            "fee": fee,
            "net": amount - fee,
        }
    )
