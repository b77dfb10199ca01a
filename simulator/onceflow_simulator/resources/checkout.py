"""Checkout sessions: completed at once, completed and unpaid until a debit settles, or expired.

Rule: "completed" is not "paid": ``payment_status`` says which, and a later event of its own what became of it.
"""

from __future__ import annotations

from onceflow_simulator.books import Books
from onceflow_simulator.errors import invalid
from onceflow_simulator.listing import lister
from onceflow_simulator.resources import confirmation
from onceflow_simulator.resources.intents import new_intent
from onceflow_simulator.resources.payment_intents import OLDER, method_of
from onceflow_simulator.resources.plain import fields_of, retriever
from onceflow_simulator.routes import Call, Routes
from onceflow_simulator.validation import LIST, Spec
from onceflow_simulator.world import Json

KIND = "checkout.session"
PAGE = "/v1/payment_pages/{id}"


def add_routes(routes: Routes) -> None:
    """Add the resource's addresses, and those of the page that a customer would see."""
    one = "/v1/checkout/sessions/{id}"
    spec = Spec(more=("cancel_url", *OLDER))
    routes.post("/v1/checkout/sessions", create, spec=spec, of="checkout_session")
    filters = {"payment_intent": "payment_intent", "customer": "customer"}
    routes.get("/v1/checkout/sessions", lister(KIND, filters), spec=LIST, of="checkout_session")
    routes.get(one, retriever(KIND), of="checkout_session")
    routes.post(one + "/expire", expire, of="checkout_session")
    routes.get(PAGE, retriever(KIND), of="checkout_session")
    routes.post(PAGE + "/confirm", confirm, of="checkout_session")


def create(call: Call) -> Json:
    """Open a session over the prices of its lines."""
    books, params = call.books, call.params
    total, currency = 0, params.get("currency", "usd")
    lines = params.get("line_items")
    for line in lines if isinstance(lines, list) else []:
        if line.get("price"):
            price = books.get("price", line["price"], param="line_items")
            total += (price["unit_amount"] or 0) * int(line.get("quantity", 1))
            currency = price["currency"]
    kept: Json = {
        name: params[name] for name in ("metadata", "mode", "success_url", "cancel_url", "customer") if name in params
    }
    body = books.new(
        KIND,
        prefix="cs_live" if books.account.livemode else "cs_test",
        fields={
            "amount_total": total,
            "client_reference_id": params.get("client_reference_id"),
            "currency": currency,
            "customer": None,
            "metadata": {},
            "payment_intent": None,
            "payment_status": "unpaid",
            "status": "open",
            **fields_of(kept),
        },
    )
    body["url"] = f"https://checkout.stripe.com/c/pay/{body['id']}"
    return body


def expire(call: Call) -> Json:
    """Close it unpaid.

    Raises:
        StripeError: 400, it is not open.
    """
    body = _open(call)
    body["status"] = "expired"
    call.books.emit("checkout.session.expired", body)
    return body


def confirm(call: Call) -> Json:
    """The customer pays.

    Raises:
        StripeError: 402, declined; 400, it is not open.
    """
    books, body = call.books, _open(call)
    intent = new_intent(
        books,
        amount=body["amount_total"],
        currency=body["currency"],
        customer=body["customer"],
        method=method_of(books, call.params),
    )
    body["payment_intent"] = intent["id"]
    confirmation.confirm(books, intent, params={})
    paid = intent["status"] == "succeeded"
    body |= {"status": "complete", "payment_status": "paid" if paid else "unpaid"}
    books.emit("checkout.session.completed", body)
    if not paid:
        books.account.watchers[intent["id"]] = lambda later, settled: _settled(later, body, settled)
    return body


def _settled(books: Books, body: Json, intent: Json) -> None:
    if intent["status"] == "succeeded":
        body["payment_status"] = "paid"
        books.emit("checkout.session.async_payment_succeeded", body)
    else:
        books.emit("checkout.session.async_payment_failed", body)


def _open(call: Call) -> Json:
    body = call.books.get(KIND, call.ids[0])
    if body["status"] != "open":
        raise invalid(f"This Session is not open: it has a status of {body['status']}.")
    return body
