"""PaymentIntents that Stripe makes by itself: for invoices, for checkout pages.

Rule: they are intents like any other, in the same store, with the same events and the same ledger.
"""

from __future__ import annotations

from onceflow_simulator.books import Books
from onceflow_simulator.resources import payment_intents
from onceflow_simulator.world import Json


def new_intent(books: Books, *, amount: int, currency: str, customer: str | None, method: str | None) -> Json:
    """A new intent that is not confirmed."""
    params = {"amount": str(amount), "currency": currency}
    body = payment_intents.put_new(books, params, method=method)
    body["customer"] = customer
    books.emit("payment_intent.created", body)
    return body
