"""Credit notes of invoices, and reversals of transfers: documents about money that was asked for before.

Rule: neither exceeds what it is about.
"""

from __future__ import annotations

from onceflow_simulator.books import Books
from onceflow_simulator.errors import invalid
from onceflow_simulator.listing import lister
from onceflow_simulator.resources.plain import retriever, updater
from onceflow_simulator.routes import Call, Routes
from onceflow_simulator.validation import FROM_ONE, LIST, Spec
from onceflow_simulator.world import Json

KIND = "credit_note"


def add_routes(routes: Routes) -> None:
    """Add the resources' addresses."""
    one = "/v1/credit_notes/{id}"
    routes.post("/v1/credit_notes", create, spec=Spec(required=("invoice",)))
    routes.get("/v1/credit_notes", lister(KIND, {"invoice": "invoice"}), spec=LIST)
    routes.get(one, retriever(KIND))
    routes.post(one, updater(KIND))
    routes.post(one + "/void", void)
    routes.post("/v1/transfers/{id}/reversals", reverse, spec=Spec(whole={"amount": FROM_ONE}))
    routes.post("/v1/test_helpers/test_clocks/{id}/advance", advance, spec=Spec(required=("frozen_time",)))


def create(call: Call) -> Json:
    """Credit an invoice.

    Raises:
        StripeError: 400, more than the invoice is over.
    """
    books, params = call.books, call.params
    invoice = books.get("invoice", params["invoice"], param="invoice")
    lines = params.get("lines")
    amount = int(params.get("amount", 0))
    for line in lines if isinstance(lines, list) else []:
        amount += int(line.get("amount", int(line.get("unit_amount", 0)) * int(line.get("quantity", 1))))
    if amount > invoice["total"]:
        raise invalid("The sum of credit amounts exceeds the invoice's total.", param="amount")
    body = books.new(
        KIND,
        prefix="cn",
        fields={
            "amount": amount,
            "currency": invoice["currency"],
            "invoice": invoice["id"],
            "metadata": dict(params.get("metadata") or {}),
            "status": "issued",
        },
    )
    books.emit("credit_note.created", body)
    return body


def void(call: Call) -> Json:
    """Take it back."""
    body = call.books.get(KIND, call.ids[0])
    body["status"] = "void"
    call.books.emit("credit_note.voided", body)
    return body


def reverse(call: Call) -> Json:
    """Bring a transfer back, all or a part of it.

    Raises:
        StripeError: 400, more than is left of it.
    """
    transfer = call.books.get("transfer", call.ids[0])
    left = transfer["amount"] - transfer["amount_reversed"]
    amount = int(call.params.get("amount", left))
    if not 0 < amount <= left:
        raise invalid(f"Cannot reverse {amount} of this transfer: {left} is left.", param="amount")
    transfer["amount_reversed"] += amount
    transfer["reversed"] = transfer["amount_reversed"] == transfer["amount"]
    fields = {"amount": amount, "currency": transfer["currency"], "transfer": transfer["id"], "metadata": {}}
    body = call.books.new("transfer_reversal", prefix="trr", fields=fields)
    call.books.emit("transfer.reversed", transfer)
    return body


def advance(call: Call) -> Json:
    """Move a test clock; nothing hangs on it but its own events."""
    body = call.books.get("test_helpers.test_clock", call.ids[0])
    body |= {"frozen_time": int(call.params["frozen_time"]), "status": "advancing"}
    call.books.emit("test_helpers.test_clock.advancing", body)
    call.books.later(0.0, lambda later: _arrived(later, body))
    return body


def _arrived(books: Books, clock: Json) -> None:
    clock["status"] = "ready"
    books.emit("test_helpers.test_clock.ready", clock)
