"""Charges: what a confirmed intent leaves behind, and where the money is counted.

Rule: the truth ledger gets its entry here, in the line that makes the money move.
"""

from __future__ import annotations

from onceflow_simulator.books import Books
from onceflow_simulator.listing import lister
from onceflow_simulator.resources.disputes import open_dispute
from onceflow_simulator.resources.plain import retriever, updater
from onceflow_simulator.routes import Routes
from onceflow_simulator.sample_methods import Method
from onceflow_simulator.validation import LIST
from onceflow_simulator.world import Json

KIND = "charge"


def add_routes(routes: Routes) -> None:
    """Add the resource's addresses."""
    routes.get("/v1/charges", lister(KIND, {"customer": "customer", "payment_intent": "payment_intent"}), spec=LIST)
    routes.get("/v1/charges/{id}", retriever(KIND))
    routes.post("/v1/charges/{id}", updater(KIND))


def make(books: Books, intent: Json, *, method: Method, status: str, manual: bool) -> Json:
    """A charge of an intent, without event or money."""
    body = books.new(
        KIND,
        prefix="ch" if method.type == "card" else "py",
        fields={
            "amount": intent["amount"],
            "amount_captured": 0,
            "amount_refunded": 0,
            "balance_transaction": None,
            "billing_details": {"address": None, "email": None, "name": None, "phone": None},
            "captured": False,
            "currency": intent["currency"],
            "customer": intent["customer"],
            "description": intent["description"],
            "disputed": False,
            "failure_code": None,
            "failure_message": None,
            "metadata": dict(intent["metadata"]) if books.world.knobs.metadata_to_charge else {},
            "outcome": {"network_status": "approved_by_network", "type": "manual_capture" if manual else "authorized"},
            "paid": status == "succeeded",
            "payment_intent": intent["id"],
            "payment_method": intent["payment_method"],
            "payment_method_details": {
                "type": method.type,
                method.type: {"brand": method.brand, "last4": method.last4},
            },
            "receipt_email": intent["receipt_email"],
            "refunded": False,
            "status": status,
        },
    )
    intent["latest_charge"] = body["id"]
    return body


def take(books: Books, charge: Json, *, intent: Json, amount: int, method: Method, key: str | None = None) -> None:
    """Money is taken: counted in the truth ledger, and dated in the balance."""
    books.record("charge", charge, amount=amount, parent=intent["id"], metadata=intent["metadata"], key=key)
    charge |= {"captured": True, "amount_captured": amount, "paid": True, "status": "succeeded"}
    charge["balance_transaction"] = books.world.ids.new("txn")
    intent["amount_received"] = amount
    if method.dispute:
        books.later(0.0, lambda later: open_dispute(later, charge, reason=method.dispute))


def fail(charge: Json, *, code: str, message: str) -> None:
    """The charge did not go through."""
    charge |= {"status": "failed", "paid": False, "failure_code": code, "failure_message": message}
    charge["outcome"] = {"network_status": "declined_by_network", "type": "issuer_declined"}
