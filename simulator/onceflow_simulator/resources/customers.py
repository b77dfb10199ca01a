"""Customers, with their discount, sources and default payment method.

Rule: a deleted customer is gone from lists and can still be told apart from one that never was.
"""

from __future__ import annotations

from onceflow_simulator import sample_methods
from onceflow_simulator.books import Books
from onceflow_simulator.errors import missing
from onceflow_simulator.listing import lister
from onceflow_simulator.resources import payment_methods
from onceflow_simulator.resources.plain import apply, deleted, fields_of, merge_metadata
from onceflow_simulator.routes import Call, Routes
from onceflow_simulator.validation import LIST, SIGNED, Spec
from onceflow_simulator.world import Json

KIND = "customer"
_NUMBERS = {"balance": SIGNED}
_HANDLED = frozenset({"coupon", "payment_method", "source"})


def add_routes(routes: Routes) -> None:
    """Add the resource's addresses."""
    one = "/v1/customers/{id}"
    spec = Spec(whole=_NUMBERS, more=("coupon",))
    routes.post("/v1/customers", create, spec=spec)
    routes.get("/v1/customers", lister(KIND, {"email": "email"}), spec=LIST)
    routes.get(one, retrieve)
    routes.post(one, update, spec=spec)
    routes.delete(one, delete)
    routes.post(one + "/sources", add_source, spec=Spec(required=("source",), more=("source",)))
    routes.post(one + "/sources/{source}", update_source)
    routes.delete(one + "/discount", lambda call: drop_discount(call.books, call.books.get(KIND, call.ids[0])))


def create(call: Call) -> Json:
    """Make a customer, with a coupon or a payment method when the request says so."""
    books, params = call.books, call.params
    defaults = {"balance": 0, "currency": None, "delinquent": False, "email": None, "name": None, "discount": None}
    given = {name: value for name, value in params.items() if name not in _HANDLED}
    body = books.new(
        KIND, prefix="cus", fields={"metadata": {}, "description": None, **defaults, **fields_of(given, whole=_NUMBERS)}
    )
    body.setdefault("invoice_settings", {})
    books.emit("customer.created", body)
    _arrange(call, body)
    return body


def retrieve(call: Call) -> Json:
    """The customer, or that there was one."""
    gone = call.ids[0]
    if gone in call.books.account.objects.get("deleted_customer", {}):
        return {"id": gone, "object": KIND, "deleted": True}
    return call.books.get(KIND, gone)


def update(call: Call) -> Json:
    """Change a customer."""
    body = call.books.get(KIND, call.ids[0])
    given = {name: value for name, value in call.params.items() if name not in _HANDLED}
    previous = apply(body, given, whole=_NUMBERS)
    _arrange(call, body)
    call.books.emit("customer.updated", body, previous=previous)
    return body


def delete(call: Call) -> Json:
    """Delete a customer."""
    body = call.books.get(KIND, call.ids[0])
    gone = deleted(call.books, KIND, id=body["id"])
    call.books.account.objects.setdefault("deleted_customer", {})[body["id"]] = body
    return gone


def add_source(call: Call) -> Json:
    """Give the customer a card by its token."""
    body = call.books.get(KIND, call.ids[0])
    return _source(call.books, body, call.params["source"])


def update_source(call: Call) -> Json:
    """Change the metadata of a card."""
    body = call.books.get("card", call.ids[1])
    previous = merge_metadata(body, call.params)
    call.books.emit("customer.source.updated", body, previous=previous)
    return body


def drop_discount(books: Books, customer: Json) -> Json:
    """Take the discount away."""
    discount, customer["discount"] = customer["discount"], None
    if discount is None:
        raise missing("discount", customer["id"])
    books.emit("customer.discount.deleted", discount)
    return {"object": "discount", "id": discount["id"], "deleted": True}


def _arrange(call: Call, body: Json) -> None:
    """Coupon, payment method and source of the request."""
    books, params = call.books, call.params
    if "coupon" in params:
        _discount(books, body, params["coupon"])
    if params.get("payment_method"):
        method = payment_methods.attached(books, params["payment_method"], customer=body["id"])
        if (body.get("invoice_settings") or {}).get("default_payment_method") == params["payment_method"]:
            body["invoice_settings"]["default_payment_method"] = method["id"]
    if params.get("source"):
        _source(books, body, params["source"])


def _discount(books: Books, body: Json, coupon: str) -> None:
    if coupon == "":
        if body["discount"] is not None:
            drop_discount(books, body)
        return
    before = body["discount"]
    fields = {"coupon": books.get("coupon", coupon, param="coupon"), "customer": body["id"], "start": books.now}
    body["discount"] = books.new("discount", prefix="di", fields=fields)
    if before is None:
        books.emit("customer.discount.created", body["discount"])
    else:
        books.emit("customer.discount.updated", body["discount"], previous={"coupon": before["coupon"]})


def _source(books: Books, customer: Json, token: str) -> Json:
    name = sample_methods.by_token(token)
    if name is None:
        raise missing("token", token, param="source")
    method = payment_methods.make(books, name)
    card = {**method["card"], "customer": customer["id"], "metadata": {}}
    body = books.new("card", prefix="card", fields=card)
    books.account.methods[body["id"]] = name
    method["customer"] = customer["id"]
    customer["default_source"] = body["id"]
    customer["invoice_settings"].setdefault("default_payment_method", method["id"])
    books.emit("customer.source.created", body)
    return body
