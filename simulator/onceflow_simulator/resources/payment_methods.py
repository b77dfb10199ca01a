"""Payment methods: those of tests by name, made ones, attached to customers and taken away again.

Rule: a name for tests (``pm_card_visa``) becomes an object of its own each time it is used, as with Stripe.
"""

from __future__ import annotations

from typing import Any

from onceflow_simulator import sample_methods
from onceflow_simulator.books import Books
from onceflow_simulator.errors import invalid, missing
from onceflow_simulator.listing import lister
from onceflow_simulator.params import Params
from onceflow_simulator.resources.plain import merge_metadata
from onceflow_simulator.routes import Call, Routes
from onceflow_simulator.sample_methods import METHODS, Method
from onceflow_simulator.validation import LIST, Spec
from onceflow_simulator.world import Json

KIND = "payment_method"


def add_routes(routes: Routes) -> None:
    """Add the resource's addresses."""
    routes.post("/v1/payment_methods", create, spec=Spec(required=("type",)))
    routes.get("/v1/payment_methods", lister(KIND, {"customer": "customer", "type": "type"}), spec=LIST)
    routes.get("/v1/payment_methods/{id}", lambda call: of_id(call.books, call.ids[0]))
    routes.post("/v1/payment_methods/{id}", update)
    routes.post("/v1/payment_methods/{id}/attach", attach)
    routes.post("/v1/payment_methods/{id}/detach", detach)
    routes.get("/v1/customers/{id}/payment_methods", _of_customer, spec=LIST)


def of_id(books: Books, id: str, *, param: str = "payment_method") -> Json:
    """The payment method of an id, or a new one for a name of tests.

    Raises:
        StripeError: 404.
    """
    found = books.account.objects.get(KIND, {}).get(id)
    if found is not None:
        return found
    name = sample_methods.by_token(id)
    if name is None:
        raise missing("PaymentMethod", id, param=param)
    return make(books, name)


def behaviour(books: Books, id: str) -> Method:
    """How a payment method behaves when it is charged."""
    return METHODS[books.account.methods[id]]


def make(books: Books, name: str, *, fields: Params | None = None) -> Json:
    """A new payment method that behaves as the one of tests with this name."""
    method = METHODS[name]
    detail: dict[str, Any] = {"last4": method.last4}
    if method.type == "card":
        detail |= {"brand": method.brand, "country": "US", "exp_month": 12, "exp_year": 2040, "funding": "credit"}
    body = books.new(
        KIND,
        prefix="pm",
        fields={
            "type": method.type,
            "customer": None,
            "metadata": {},
            "billing_details": {"address": None, "email": None, "name": None, "phone": None},
            method.type: detail,
            **(fields or {}),
        },
    )
    books.account.methods[body["id"]] = name
    return body


def create(call: Call) -> Json:
    """Make one from a token, a number or an account number."""
    return from_params(call.books, call.params)


def from_params(books: Books, params: Params) -> Json:
    """A payment method of the details that a request gives.

    Raises:
        StripeError: 400, the details are of no known card or account.
    """
    kind: str = params.get("type", "card")
    detail: Params = params[kind] if isinstance(params.get(kind), dict) else {}
    fields = {name: params[name] for name in ("billing_details",) if name in params}
    fields["metadata"] = params.get("metadata") or {}
    if "token" in detail or "number" in detail:
        given = detail.get("token") or detail["number"]
        name = sample_methods.by_token(given) or sample_methods.NUMBERS.get(given)
        if name is None:
            raise missing("token", given, param=f"{kind}[token]")
        return make(books, name, fields=fields)
    if "iban" in detail:
        name = sample_methods.IBANS.get(detail["iban"].replace(" ", ""), "sepaDebit_success")
        return make(books, name, fields=fields)
    body = make(books, "usBankAccount_success" if kind == "us_bank_account" else "card_visa", fields=fields)
    body["type"] = kind
    return body


def update(call: Call) -> Json:
    """Change its metadata or billing details."""
    books, body = call.books, of_id(call.books, call.ids[0])
    previous = merge_metadata(body, call.params)
    if "billing_details" in call.params:
        previous["billing_details"] = body["billing_details"]
        body["billing_details"] = {**body["billing_details"], **call.params["billing_details"]}
    books.emit("payment_method.updated", body, previous=previous)
    return body


def attach(call: Call) -> Json:
    """Give it to a customer."""
    customer = call.books.get("customer", call.params.get("customer", ""), param="customer")
    return attached(call.books, call.ids[0], customer=customer["id"])


def attached(books: Books, id: str, *, customer: str) -> Json:
    """The payment method, now the customer's."""
    body = of_id(books, id)
    body["customer"] = customer
    books.emit("payment_method.attached", body)
    return body


def detach(call: Call) -> Json:
    """Take it from its customer."""
    body = of_id(call.books, call.ids[0])
    if body["customer"] is None:
        raise invalid("The payment method you provided is not attached to a customer so detachment is impossible.")
    previous = {"customer": body["customer"]}
    body["customer"] = None
    call.books.emit("payment_method.detached", body, previous=previous)
    return body


def _of_customer(call: Call) -> Json:
    call.params["customer"] = call.books.get("customer", call.ids[0])["id"]
    return lister(KIND, {"customer": "customer", "type": "type"})(call)  # type: ignore[no-any-return]
