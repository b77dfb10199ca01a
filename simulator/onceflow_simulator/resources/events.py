"""Events by list and by id, snapshot and thin, and sent again.

Rule: what the list shows is decided by ``event_log``; here are only the addresses.
"""

from __future__ import annotations

from onceflow_simulator.emission import thin
from onceflow_simulator.errors import invalid, missing
from onceflow_simulator.event_log import Emitted
from onceflow_simulator.listing import limit_of, list_body
from onceflow_simulator.params import Params
from onceflow_simulator.routes import Call, Routes
from onceflow_simulator.validation import LIST, Spec
from onceflow_simulator.world import Json

THIN_DEFAULT = 20
_LIST = Spec(whole=LIST.whole, switches=("delivery_success",))


def add_routes(routes: Routes) -> None:
    """Add the resource's addresses."""
    routes.get("/v1/events", list_events, spec=_LIST)
    routes.get("/v1/events/{id}", retrieve)
    routes.post("/v1/events/{id}/retry", resend, spec=Spec(more=("webhook_endpoint", "account")))
    routes.get("/v2/core/events", list_thin, spec=LIST, of="event")
    routes.get("/v2/core/events/{id}", retrieve_thin, of="event")


def list_events(call: Call) -> Json:
    """A page of the account's events, newest first."""
    page, has_more = _page(call, call.params, limit=limit_of(call.params))
    return list_body(call.path, [emitted.shown() for emitted in page], has_more=has_more)


def retrieve(call: Call) -> Json:
    """One event."""
    return _seen(call, call.ids[0]).shown()


def resend(call: Call) -> Json:
    """Send an event once more to one endpoint, or to all that wanted it."""
    emitted = _seen(call, call.ids[0])
    deliveries = call.books.world.deliveries
    chosen = call.params.get("webhook_endpoint")
    if deliveries is None or (chosen and chosen not in deliveries.endpoints):
        raise missing("webhook_endpoint", chosen or "", param="webhook_endpoint")
    for endpoint in list(deliveries.endpoints.values()):
        if endpoint.id == chosen or (not chosen and endpoint.wants(call.books.account, emitted.body)):
            deliveries.schedule(endpoint, account=call.books.account, emitted=emitted)
    return emitted.shown()


def list_thin(call: Call) -> Json:
    """A page of thin events, by the address of the next page."""
    limit = limit_of(call.params, default=THIN_DEFAULT)
    params: Params = {}
    if call.params.get("page"):
        found = call.books.account.events.find_thin(call.params["page"])
        if found is None:
            raise invalid("Invalid page token.", param="page")
        params["starting_after"] = found.body["id"]
    page, has_more = _page(call, params, limit=limit)
    following = f"{call.path}?limit={limit}&page={page[-1].thin_id}" if has_more else None
    data = [thin(emitted, call.books.account, fetched=True) for emitted in page]
    return {"data": data, "next_page_url": following, "previous_page_url": None}


def retrieve_thin(call: Call) -> Json:
    """One thin event, with the id of its snapshot."""
    account = call.books.account
    found = account.events.find_thin(call.ids[0])
    if found is None:
        raise missing("event", call.ids[0])
    return thin(_seen(call, found.body["id"]), account, fetched=True)


def _page(call: Call, params: Params, *, limit: int) -> tuple[list[Emitted], bool]:
    world = call.books.world
    return call.books.account.events.page(
        params,
        limit=limit,
        now=world.clock.now(),
        horizon_seconds=world.knobs.event_horizon_seconds,
        expired_cursor=world.knobs.expired_cursor,
    )


def _seen(call: Call, id: str) -> Emitted:
    world = call.books.world
    horizon = world.knobs.event_horizon_seconds
    return call.books.account.events.get(id, now=world.clock.now(), horizon_seconds=horizon)
