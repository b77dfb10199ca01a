"""Invoices, their items and their lines: drafted, finalized, paid, voided, written off, credited.

Rule: an invoice's money goes through a PaymentIntent like any other, so it is counted in one place.  An invoice shows its
first lines only, in events too; the others come by pages.
"""

from __future__ import annotations

from onceflow_simulator.books import Books
from onceflow_simulator.errors import StripeError, invalid, missing
from onceflow_simulator.listing import limit_of, list_body, lister
from onceflow_simulator.paging import BEFORE, cursor_of, pick
from onceflow_simulator.resources import confirmation, payment_methods
from onceflow_simulator.resources.intents import new_intent
from onceflow_simulator.resources.plain import deleted, deleter, fields_of, retriever, updater
from onceflow_simulator.routes import Call, Routes
from onceflow_simulator.validation import LIST, SIGNED, Spec
from onceflow_simulator.world import Json

KIND, ITEM = "invoice", "invoiceitem"
AMOUNTS = {"amount": SIGNED}
LINES_SHOWN = 10


def add_routes(routes: Routes) -> None:
    """Add the resource's addresses."""
    one = "/v1/invoices/{id}"
    routes.post("/v1/invoiceitems", create_item, spec=Spec(required=("customer",), whole=AMOUNTS))
    routes.get("/v1/invoiceitems", lister(ITEM, {"customer": "customer", "invoice": "invoice"}), spec=LIST)
    routes.get("/v1/invoiceitems/{id}", retriever(ITEM))
    routes.delete("/v1/invoiceitems/{id}", deleter(ITEM))
    routes.post("/v1/invoices", create, spec=Spec(required=("customer",)))
    filters = {"customer": "customer", "status": "status", "subscription": "parent.subscription_details.subscription"}
    routes.get("/v1/invoices", lister(KIND, filters), spec=LIST)
    routes.get(one, retriever(KIND))
    routes.get(one + "/lines", list_lines, spec=LIST)
    routes.post(one, updater(KIND))
    routes.delete(one, delete)
    routes.post(one + "/finalize", lambda call: finalized(call.books, _draft(call)))
    routes.post(one + "/pay", pay)
    routes.post(one + "/void", lambda call: _end(call, status="void", event="invoice.voided"))
    routes.post(one + "/send", send)
    routes.post(
        one + "/mark_uncollectible",
        lambda call: _end(call, status="uncollectible", event="invoice.marked_uncollectible"),
    )


def create_item(call: Call) -> Json:
    """Something to be put on the customer's next invoice."""
    books = call.books
    books.get("customer", call.params["customer"], param="customer")
    fields: Json = {"metadata": {}, "description": None, "currency": "usd", "invoice": None, "amount": 0}
    body = books.new(ITEM, prefix="ii", fields={**fields, **fields_of(call.params, whole=AMOUNTS)})
    books.emit("invoiceitem.created", body)
    return body


def create(call: Call) -> Json:
    """Draft an invoice, with the pending items when the request says so."""
    books, params = call.books, call.params
    books.get("customer", params["customer"], param="customer")
    body = draft(books, customer=params["customer"], fields=fields_of(params))
    if params.get("pending_invoice_items_behavior") == "include":
        items = [item for item in books.all(ITEM) if item["customer"] == params["customer"] and item["invoice"] is None]
        for item in items:
            item["invoice"] = body["id"]
            add_line(books, body, amount=item["amount"], currency=item["currency"], description=item["description"])
    books.emit("invoice.created", body)
    return body


def draft(books: Books, *, customer: str, fields: Json) -> Json:
    """An empty draft, without its event."""
    body = books.new(
        KIND,
        prefix="in",
        fields={
            "amount_due": 0,
            "amount_paid": 0,
            "amount_remaining": 0,
            "attempt_count": 0,
            "attempted": False,
            "collection_method": "charge_automatically",
            "currency": "usd",
            "lines": {"object": "list", "data": [], "has_more": False, "total_count": 0},
            "metadata": {},
            "payments": {"object": "list", "data": [], "has_more": False},
            "status": "draft",
            "total": 0,
            **{name: value for name, value in fields.items() if name != "pending_invoice_items_behavior"},
            "customer": customer,
        },
    )
    body["lines"]["url"] = f"/v1/invoices/{body['id']}/lines"
    return body


def add_line(books: Books, body: Json, *, amount: int, currency: str, description: str | None) -> None:
    """One more line."""
    lines = books.account.lines.setdefault(body["id"], [])
    lines.append(
        {"id": f"il_{len(lines)}_{body['id']}", "object": "line_item", "amount": amount, "description": description}
    )
    shown = {"data": lines[:LINES_SHOWN], "has_more": len(lines) > LINES_SHOWN, "total_count": len(lines)}
    body |= {"currency": currency, "total": body["total"] + amount, "lines": {**body["lines"], **shown}}
    body["amount_due"] = body["amount_remaining"] = max(body["total"], 0)


def list_lines(call: Call) -> Json:
    """A page of an invoice's lines, the first one first."""
    body = call.books.get(KIND, call.ids[0])
    lines = call.books.account.lines.get(body["id"], [])
    cursor, param = cursor_of(call.params)
    place = next((n for n, line in enumerate(lines) if line["id"] == cursor), None)
    if cursor and place is None:
        raise missing("line_item", cursor, param=param)
    away = lines[:place][::-1] if param == BEFORE else lines[0 if place is None else place + 1 :]
    page, has_more = pick(away, lambda _line: True, limit=limit_of(call.params), reverse=param == BEFORE)
    return {**list_body(call.path, page, has_more=has_more), "total_count": len(lines)}


def delete(call: Call) -> Json:
    """Delete a draft."""
    return deleted(call.books, KIND, id=_draft(call)["id"])


def finalized(books: Books, body: Json) -> Json:
    """It is due from now on; an invoice over nothing is paid by that."""
    body["status"] = "open"
    body["number"] = f"SIM-{len(books.account.objects[KIND]):04d}"
    books.emit("invoice.finalized", body)
    if body["amount_due"] == 0:
        _paid(books, body)
    return body


def pay(call: Call) -> Json:
    """Collect the money of an invoice.

    Raises:
        StripeError: 402 declined; 400 it is not open, or a payment of it is still processing.
    """
    body = call.books.get(KIND, call.ids[0])
    if body["status"] == "draft":
        finalized(call.books, body)
    if body["status"] == "paid":
        raise invalid("Invoice is already paid", code="invoice_already_paid")
    if body["status"] != "open":
        raise invalid(f"This invoice has a status of {body['status']} and cannot be paid.")
    if _is_processing(call.books, body):
        raise invalid("A payment of this invoice is still processing.", code="payment_intent_unexpected_state")
    collect(call.books, body, method=call.params.get("payment_method"))
    return body


def _is_processing(books: Books, body: Json) -> bool:
    """Whether money is on its way already: a second payment would take it twice."""
    intents = (payment["payment"]["payment_intent"] for payment in body["payments"]["data"])
    return any(books.get("payment_intent", intent)["status"] == "processing" for intent in intents)


def collect(books: Books, body: Json, *, method: str | None) -> None:
    """Charge the customer for an open invoice.

    Raises:
        StripeError: 402, declined, or the customer has to do something.
    """
    chosen = method or _default_method(books, body["customer"])
    if chosen is None:
        raise invalid("There is no payment method to charge this invoice with.", code="missing")
    method_id = payment_methods.of_id(books, chosen)["id"]
    intent = new_intent(
        books, amount=body["amount_remaining"], currency=body["currency"], customer=body["customer"], method=method_id
    )
    body["payments"]["data"].append(
        {"object": "invoice_payment", "payment": {"type": "payment_intent", "payment_intent": intent["id"]}}
    )
    body |= {"attempted": True, "attempt_count": body["attempt_count"] + 1}
    try:
        confirmation.confirm(books, intent, params={})
    except StripeError:
        books.emit("invoice.payment_failed", body)
        raise
    if intent["status"] == "succeeded":
        _paid(books, body)
    elif intent["status"] == "processing":
        books.account.watchers[intent["id"]] = lambda later, settled: _settled(later, body, settled)
    else:
        books.emit("invoice.payment_action_required", body)
        books.emit("invoice.payment_failed", body)
        message = "Your card was declined. This transaction requires authentication."
        raise StripeError(402, "card_error", message=message, code="invoice_payment_intent_requires_action")


def send(call: Call) -> Json:
    """Send it to the customer, which finalizes a draft."""
    body = call.books.get(KIND, call.ids[0])
    if body["status"] == "draft":
        finalized(call.books, body)
    call.books.emit("invoice.sent", body)
    return body


def _paid(books: Books, body: Json) -> None:
    body |= {"status": "paid", "amount_paid": body["amount_due"], "amount_remaining": 0}
    books.emit("invoice.paid", body)
    books.emit("invoice.payment_succeeded", body)


def _settled(books: Books, body: Json, intent: Json) -> None:
    if intent["status"] == "succeeded":
        _paid(books, body)
    else:
        books.emit("invoice.payment_failed", body)


def _default_method(books: Books, customer: str) -> str | None:
    body = books.get("customer", customer, param="customer")
    found = (body.get("invoice_settings") or {}).get("default_payment_method")
    if found:
        return str(found)
    attached = [one for one in books.all("payment_method") if one["customer"] == customer]
    return str(attached[-1]["id"]) if attached else None


def _draft(call: Call) -> Json:
    body = call.books.get(KIND, call.ids[0])
    if body["status"] != "draft":
        raise invalid(f"This invoice is not a draft: it has a status of {body['status']}.")
    return body


def _end(call: Call, *, status: str, event: str) -> Json:
    body = call.books.get(KIND, call.ids[0])
    if body["status"] not in {"open", "uncollectible"}:
        raise invalid(f"This invoice has a status of {body['status']} and cannot become {status}.")
    body["status"] = status
    call.books.emit(event, body)
    return body
