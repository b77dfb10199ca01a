"""Subscriptions: begun, tried, paused, changed, ended.

Rule: the first invoice decides the status; periods do not go on by themselves.
"""

from __future__ import annotations

from typing import Any

from onceflow_simulator.books import Books
from onceflow_simulator.errors import StripeError, missing
from onceflow_simulator.listing import lister
from onceflow_simulator.params import Params
from onceflow_simulator.resources import invoices
from onceflow_simulator.resources.plain import apply, fields_of, retriever
from onceflow_simulator.routes import Call, Routes
from onceflow_simulator.validation import LIST, Spec
from onceflow_simulator.world import Json

KIND = "subscription"
DAY_SECONDS = 24 * 3600
PERIOD_SECONDS = 30 * DAY_SECONDS
WARNING_SECONDS = 3 * DAY_SECONDS
_HANDLED = frozenset({"items", "trial_period_days", "trial_end", "payment_behavior"})


def add_routes(routes: Routes) -> None:
    """Add the resource's addresses."""
    one = "/v1/subscriptions/{id}"
    spec = Spec(required=("customer", "items"), whole={"trial_period_days": (0, 730)})
    routes.post("/v1/subscriptions", create, spec=spec)
    routes.get("/v1/subscriptions", lister(KIND, {"customer": "customer", "status": "status"}), spec=LIST)
    routes.get(one, retriever(KIND))
    routes.post(one, update)
    routes.delete(one, cancel)


def create(call: Call) -> Json:
    """Begin one: on trial, active when the first invoice is paid, else incomplete."""
    books, params = call.books, call.params
    books.get("customer", params["customer"], param="customer")
    prices = _prices(books, params)
    trial = int(params.get("trial_period_days", 0)) * DAY_SECONDS
    fields = fields_of({name: value for name, value in params.items() if name not in _HANDLED})
    body = books.new(
        KIND,
        prefix="sub",
        fields={
            "cancel_at_period_end": False,
            "canceled_at": None,
            "latest_invoice": None,
            "metadata": {},
            "start_date": books.now,
            "trial_end": books.now + trial if trial else None,
            **fields,
            "items": _items(books, prices),
            "status": "trialing" if trial else "incomplete",
        },
    )
    invoice = _first_invoice(books, body, prices, free=bool(trial))
    if not trial:
        _collect(books, body, invoice)
    books.emit("customer.subscription.created", body)
    if 0 < trial <= WARNING_SECONDS:
        books.emit("customer.subscription.trial_will_end", body)
    return body


def update(call: Call) -> Json:
    """Change it; a trial that ends without a payment method pauses it, when it says so."""
    body = call.books.get(KIND, call.ids[0])
    previous = apply(body, {name: value for name, value in call.params.items() if name not in _HANDLED})
    if call.params.get("trial_end") == "now" and body["status"] == "trialing":
        previous |= {"status": "trialing", "trial_end": body["trial_end"]}
        behaviour = ((body.get("trial_settings") or {}).get("end_behavior") or {}).get("missing_payment_method")
        body |= {"status": "paused" if behaviour == "pause" else "active", "trial_end": call.books.now}
        if behaviour == "pause":
            call.books.emit("customer.subscription.paused", body)
    call.books.emit("customer.subscription.updated", body, previous=previous)
    return body


def cancel(call: Call) -> Json:
    """End it."""
    body = call.books.get(KIND, call.ids[0])
    if body["status"] == "canceled":
        raise missing(KIND, body["id"])
    body |= {"status": "canceled", "canceled_at": call.books.now}
    call.books.emit("customer.subscription.deleted", body)
    return body


def _prices(books: Books, params: Params) -> list[tuple[Json, int]]:
    items: list[Any] = params["items"] if isinstance(params["items"], list) else []
    return [
        (books.get("price", item.get("price") or item.get("plan", ""), param="items"), int(item.get("quantity", 1)))
        for item in items
    ]


def _items(books: Books, prices: list[tuple[Json, int]]) -> Json:
    data = [
        {
            "id": books.world.ids.new("si"),
            "object": "subscription_item",
            "current_period_end": books.now + PERIOD_SECONDS,
            "current_period_start": books.now,
            "price": price,
            "quantity": quantity,
        }
        for price, quantity in prices
    ]
    return {"object": "list", "data": data, "has_more": False}


def _first_invoice(books: Books, body: Json, prices: list[tuple[Json, int]], *, free: bool) -> Json:
    invoice = invoices.draft(books, customer=body["customer"], fields={"billing_reason": "subscription_create"})
    invoice["parent"] = {"type": "subscription_details", "subscription_details": {"subscription": body["id"]}}
    for price, quantity in prices:
        amount = 0 if free else (price["unit_amount"] or 0) * quantity
        invoices.add_line(books, invoice, amount=amount, currency=price["currency"], description=None)
    body["latest_invoice"] = invoice["id"]
    books.emit("invoice.created", invoice)
    return invoices.finalized(books, invoice)


def _collect(books: Books, body: Json, invoice: Json) -> None:
    if invoice["status"] == "open":
        try:
            invoices.collect(books, invoice, method=body.get("default_payment_method"))
        except StripeError:
            return
    body["status"] = "active" if invoice["status"] == "paid" else "incomplete"
