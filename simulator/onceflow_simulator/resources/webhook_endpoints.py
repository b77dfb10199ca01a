"""Webhook endpoints through Stripe's interface: the same ones that ``/_sim/webhooks`` registers with more knobs.

Rule: the secret is shown once, when the endpoint is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from onceflow_simulator.books import Books
from onceflow_simulator.complaints import complaint
from onceflow_simulator.endpoints import Endpoint, EndpointRequest, shown
from onceflow_simulator.errors import invalid, missing
from onceflow_simulator.listing import lister
from onceflow_simulator.resources.plain import merge_metadata, read, retriever
from onceflow_simulator.routes import Call, Routes
from onceflow_simulator.validation import LIST, Spec
from onceflow_simulator.world import Json

if TYPE_CHECKING:
    from onceflow_simulator.delivery import Deliveries

KIND = "webhook_endpoint"
_FIELDS = {"url": "url", "enabled_events": "types", "api_version": "api_version"}


def add_routes(routes: Routes) -> None:
    """Add the resource's addresses."""
    one = "/v1/webhook_endpoints/{id}"
    spec = Spec(required=("url", "enabled_events"), switches=("connect",))
    routes.post("/v1/webhook_endpoints", create, spec=spec)
    routes.get("/v1/webhook_endpoints", lister(KIND, {}), spec=LIST)
    routes.get(one, retriever(KIND))
    routes.post(one, update, spec=Spec(switches=("disabled",)))
    routes.delete(one, delete)


def create(call: Call) -> Json:
    """Register an endpoint; its secret is in this answer only."""
    secret = f"whsec_{call.books.world.ids.text(32)}"
    connect = call.params.get("connect") == "true"
    body = register(call.books, _settings(call, {"secrets": [secret], "connect": connect}))
    merge_metadata(body, call.params)
    if call.params.get("description"):
        body["description"] = call.params["description"]
    return {**body, "secret": secret}


def register(books: Books, settings: EndpointRequest) -> Json:
    """Take an endpoint into service."""
    body = books.new(
        KIND,
        prefix="we",
        fields={"description": None, "metadata": {}, **shown(settings)},
    )
    deliveries = _deliveries(books)
    deliveries.endpoints[body["id"]] = Endpoint(books.account.id, books.account.livemode, settings, body)
    return body


def forget(books: Books, body: Json) -> None:
    """Take an endpoint out of service."""
    books.drop(body)
    _deliveries(books).endpoints.pop(body["id"], None)


def update(call: Call) -> Json:
    """Change where it is, what it receives, and whether it is served."""
    body = call.books.get(KIND, call.ids[0])
    endpoint = _deliveries(call.books).endpoints[body["id"]]
    endpoint.change(_settings(call, endpoint.settings.model_dump()))
    merge_metadata(body, call.params)
    if "description" in call.params:
        body["description"] = read(call.params["description"])
    return body


def delete(call: Call) -> Json:
    """Remove an endpoint."""
    body = call.books.get(KIND, call.ids[0])
    forget(call.books, body)
    return {"id": body["id"], "object": KIND, "deleted": True}


def _settings(call: Call, before: Json) -> EndpointRequest:
    given = {field: call.params[name] for name, field in _FIELDS.items() if name in call.params}
    if "disabled" in call.params:
        given["enabled"] = call.params["disabled"] == "false"
    try:
        return EndpointRequest(**{**before, **given})
    except ValidationError as error:
        raise invalid(complaint(error.errors())) from None


def _deliveries(books: Books) -> Deliveries:
    if books.world.deliveries is None:
        raise missing("webhook_endpoint", "")
    return books.world.deliveries
