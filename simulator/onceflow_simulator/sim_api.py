"""``/_sim``: what a test sets and reads. Nothing of it is Stripe's.

Rule: reading here never changes anything; the truth ledger is only ever read and, by a reset, begun anew.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict

from onceflow_simulator.acts import ACTS, act
from onceflow_simulator.books import Books
from onceflow_simulator.complaints import STATUS, complaint, one_of, read
from onceflow_simulator.delivery import Deliveries
from onceflow_simulator.endpoints import EndpointRequest
from onceflow_simulator.errors import StripeError
from onceflow_simulator.faults import FAULTS, Faults, Rule
from onceflow_simulator.knobs import Knobs
from onceflow_simulator.ledger import Kind
from onceflow_simulator.resources import webhook_endpoints
from onceflow_simulator.stripe_api import StripeApi
from onceflow_simulator.told_events import ToldEvents, tell
from onceflow_simulator.world import ApiKey, World


class ClockRequest(BaseModel):
    """Move the clock, set it, or let it stand."""

    model_config = ConfigDict(extra="forbid")

    advance_seconds: float | None = None
    set: float | None = None
    mode: Literal["real", "fixed"] | None = None


class KeyRequest(BaseModel):
    """Make an API key known: its account, what a restricted one may, or that it is revoked."""

    model_config = ConfigDict(extra="forbid")

    key: str
    account: str | None = None
    permissions: list[str] | None = None
    revoked: bool = False


class AccountRequest(BaseModel):
    """Connect an account with the platform, or end that."""

    model_config = ConfigDict(extra="forbid")

    account: str
    state: Literal["connected", "deauthorized"] = "connected"


class ActRequest(BaseModel):
    """Something that the world does to an object: a bank, a customer, a card network."""

    model_config = ConfigDict(extra="forbid")

    act: str
    object: str
    account: str | None = None
    livemode: bool = False


def sim_api(world: World, *, api: StripeApi, faults: Faults, deliveries: Deliveries) -> FastAPI:
    """The application under ``/_sim``."""
    app = FastAPI(title="onceflow simulator", docs_url=None, redoc_url=None, openapi_url="/_sim/openapi.json")
    _add_state(app, world, api=api, deliveries=deliveries)
    _add_faults(app, faults)
    _add_clock(app, world)
    _add_accounts(app, world)
    _add_webhooks(app, world, deliveries)

    @app.exception_handler(RequestValidationError)
    async def refuse(_request: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"detail": complaint(error.errors())}, STATUS)

    @app.post("/_sim/reset")
    async def reset() -> dict[str, Any]:
        """Forget all that happened."""
        deliveries.forget()
        faults.clear()
        world.reset()
        return {"ok": True}

    return app


def _add_state(app: FastAPI, world: World, *, api: StripeApi, deliveries: Deliveries) -> None:
    @app.get("/_sim/state")
    async def state() -> dict[str, Any]:
        """What is going on, and bugs of the simulator itself."""
        return {
            "platform": world.platform,
            "seed": world.seed,
            "now": world.clock.now(),
            "mode": world.clock.mode,
            "requests": api.requests,
            "planned": len(world.agenda),
            "deliveries_waiting": deliveries.waiting,
            "events": {
                f"{one.id}/{'live' if one.livemode else 'test'}": len(one.events) for one in world.accounts.values()
            },
            "bugs": world.bugs,
        }

    @app.get("/_sim/ledger")
    async def ledger(by: str | None = None, kind: str | None = None, *, entries: bool = True) -> dict[str, Any]:
        """The truth."""
        if kind is not None:
            one_of(kind, get_args(Kind), kind="kind")
        return world.ledger.report(by=by, kind=kind, entries=entries)

    @app.get("/_sim/reads")
    async def reads() -> dict[str, Any]:
        """How often each thing was read at Stripe's interface, refused requests too."""
        return {"reads": [{"account": one, "path": path, "count": n} for (one, path), n in sorted(world.reads.items())]}

    @app.get("/_sim/knobs")
    async def knobs() -> Knobs:
        """The settings in force."""
        return world.knobs

    @app.post("/_sim/knobs")
    async def set_knobs(given: dict[str, Any]) -> Knobs:
        """Change some of them, all or none."""
        world.knobs = read(Knobs, {**world.knobs.model_dump(), **given})
        return world.knobs

    @app.post("/_sim/events")
    async def told(given: ToldEvents) -> dict[str, Any]:
        """Take events that the list shows; nobody delivers them unless that is asked for."""
        account = world.account(given.account or world.platform, livemode=given.livemode)
        taken = tell(world, account, events=given.events)
        for emitted in taken if given.deliver else ():
            deliveries.take(account, emitted)
        return {"told": len(taken)}

    @app.get("/_sim/deliveries")
    async def delivered() -> dict[str, Any]:
        """Every attempt that was made, and how many are to come."""
        return {"attempts": deliveries.attempts, "waiting": deliveries.waiting}


def _add_faults(app: FastAPI, faults: Faults) -> None:
    @app.post("/_sim/faults")
    async def add(given: dict[str, Any] | list[dict[str, Any]]) -> dict[str, Any]:
        """Put rules in force."""
        chosen = [read(Rule, one) for one in (given if isinstance(given, list) else [given])]
        for rule in chosen:
            one_of(rule.fault, FAULTS, kind="fault")
        return {"ids": [faults.add(rule) for rule in chosen]}

    @app.get("/_sim/faults")
    async def rules() -> dict[str, Any]:
        """The rules in force."""
        return {"rules": faults.rules(), "known": sorted(FAULTS)}

    @app.delete("/_sim/faults")
    async def remove_all() -> dict[str, Any]:
        """Take all rules out of force; the journal stays."""
        faults.remove()
        return {"ok": True}

    @app.delete("/_sim/faults/{id}")
    async def remove(id: str) -> dict[str, Any]:
        """Take one rule out of force."""
        faults.remove(id)
        return {"ok": True}

    @app.get("/_sim/journal")
    async def journal() -> dict[str, Any]:
        """Each fault that fired."""
        return {"entries": faults.journal}


def _add_clock(app: FastAPI, world: World) -> None:
    @app.get("/_sim/clock")
    async def clock() -> dict[str, Any]:
        """The time."""
        return _clock(world)

    @app.post("/_sim/clock")
    async def move(asked: ClockRequest) -> dict[str, Any]:
        """Move the clock, and run what became due on the way."""
        if asked.mode is not None:
            world.clock.choose(asked.mode)
        if asked.set is not None:
            world.clock.set(asked.set)
        if asked.advance_seconds is not None:
            world.clock.advance(asked.advance_seconds)
        return {"ran": world.agenda.run_due(), **_clock(world)}


def _clock(world: World) -> dict[str, Any]:
    clock = world.clock
    return {"now": clock.now(), "mode": clock.mode, "advanced_seconds": clock.advanced_seconds}


def _add_accounts(app: FastAPI, world: World) -> None:
    @app.post("/_sim/keys")
    async def key(asked: KeyRequest) -> dict[str, Any]:
        """Make a key known."""
        permissions = None if asked.permissions is None else frozenset(asked.permissions)
        world.api_keys[asked.key] = ApiKey(asked.account or world.platform, permissions, asked.revoked)
        return {"ok": True}

    @app.post("/_sim/accounts")
    async def account(asked: AccountRequest) -> dict[str, Any]:
        """Connect an account, or end that."""
        world.connections[asked.account] = asked.state
        return {"ok": True}

    @app.post("/_sim/prune_keys")
    async def prune_keys() -> dict[str, Any]:
        """Forget all idempotency keys now, as Stripe may when they are a day old."""
        for one in world.accounts.values():
            one.keys.prune()
        return {"ok": True}

    @app.post("/_sim/act")
    async def do(asked: ActRequest) -> dict[str, Any]:
        """Let a bank, a customer or a card network do something."""
        one_of(asked.act, ACTS, kind="act")
        books = Books(world, world.account(asked.account or world.platform, livemode=asked.livemode))
        body = books.account.index.get(asked.object)
        if body is None:
            raise HTTPException(404, f"no object {asked.object!r} in account {books.account.id}")
        try:
            return act(books, asked.act, body=body)
        except StripeError as error:
            raise HTTPException(STATUS, error.message) from None


def _add_webhooks(app: FastAPI, world: World, deliveries: Deliveries) -> None:
    @app.post("/_sim/webhooks")
    async def add(asked: EndpointRequest) -> dict[str, Any]:
        """Register an endpoint with its troubles."""
        books = Books(world, world.account(asked.account or world.platform, livemode=asked.livemode))
        return webhook_endpoints.register(books, asked)

    @app.get("/_sim/webhooks")
    async def all_endpoints() -> dict[str, Any]:
        """The endpoints and what was dropped."""
        return {
            "endpoints": [
                {
                    **one.settings.model_dump(),
                    "id": one.id,
                    "account": one.account,
                    "livemode": one.livemode,
                    "dropped": sorted(one.dropped),
                }
                for one in deliveries.endpoints.values()
            ]
        }

    @app.patch("/_sim/webhooks/{id}")
    async def change(id: str, given: dict[str, Any]) -> dict[str, Any]:
        """Change an endpoint's knobs: roll its secret, disable it, drop more."""
        endpoint = deliveries.endpoints.get(id)
        if endpoint is None:
            raise HTTPException(404, f"no endpoint {id!r}")
        endpoint.change(read(EndpointRequest, {**endpoint.settings.model_dump(), **given}))
        return endpoint.body

    @app.delete("/_sim/webhooks/{id}")
    async def remove(id: str) -> dict[str, Any]:
        """Forget an endpoint."""
        endpoint = deliveries.endpoints.get(id)
        if endpoint is not None:
            books = Books(world, world.account(endpoint.account, livemode=endpoint.livemode))
            webhook_endpoints.forget(books, endpoint.body)
        return {"ok": True}
