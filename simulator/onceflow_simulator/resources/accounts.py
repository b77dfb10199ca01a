"""Accounts: the platform's own, and connected ones that are made, changed and let go.

Rule: an account that was let go refuses every request on its behalf.
"""

from __future__ import annotations

from onceflow_simulator.books import Books
from onceflow_simulator.listing import lister
from onceflow_simulator.resources.plain import fields_of, updater
from onceflow_simulator.routes import Call, Routes
from onceflow_simulator.validation import LIST
from onceflow_simulator.world import Json

KIND = "account"


def add_routes(routes: Routes) -> None:
    """Add the resource's addresses."""
    one = "/v1/accounts/{id}"
    routes.get("/v1/account", own)
    routes.post("/v1/accounts", create)
    routes.get("/v1/accounts", lister(KIND, {}), spec=LIST)
    routes.get(one, retrieve)
    routes.post(one, updater(KIND))
    routes.delete(one, let_go)


def own(call: Call) -> Json:
    """The account whose key it is."""
    return _own(call.books)


def create(call: Call) -> Json:
    """Connect a new account."""
    books = call.books
    fields = {"metadata": {}, "type": "standard", "charges_enabled": True, "country": "US", "email": None}
    body = books.new(KIND, prefix="acct", fields={**fields, **fields_of(call.params)})
    books.world.connections[body["id"]] = "connected"
    books.emit("account.updated", body)
    return body


def retrieve(call: Call) -> Json:
    """An account by its id."""
    if call.ids[0] == call.books.account.id:
        return _own(call.books)
    return call.books.get(KIND, call.ids[0])


def let_go(call: Call) -> Json:
    """Let an account go: the connection with it ends."""
    body = call.books.get(KIND, call.ids[0])
    call.books.drop(body)
    call.books.world.connections[body["id"]] = "deauthorized"
    application = {"id": "ca_simulator", "object": "application", "name": "onceflow simulator"}
    call.books.emit("account.application.deauthorized", application)
    return {"id": body["id"], "object": KIND, "deleted": True}


def _own(books: Books) -> Json:
    return {
        "id": books.account.id,
        "object": KIND,
        "charges_enabled": True,
        "country": "US",
        "default_currency": "usd",
        "details_submitted": True,
        "email": "owner@example.com",
        "metadata": {},
        "payouts_enabled": True,
        "type": "standard",
    }
