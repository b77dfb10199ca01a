"""The application: Stripe's interface and ``/_sim`` behind one port.

Rule: the first part of a path decides; requests of Stripe's interface pass no framework on their way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from onceflow_simulator.delivery import Deliveries
from onceflow_simulator.faults import Faults
from onceflow_simulator.resources import add_all
from onceflow_simulator.routes import Routes
from onceflow_simulator.sim_api import sim_api
from onceflow_simulator.stripe_api import StripeApi
from onceflow_simulator.world import World


@dataclass
class Application:
    """What uvicorn serves."""

    world: World
    api: StripeApi
    sim: FastAPI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and not scope["path"].startswith("/_sim/"):
            await self.api(scope, receive, send)
        else:
            await self.sim(scope, receive, send)


def build(world: World) -> Application:
    """Put the simulator together."""
    routes = Routes()
    add_all(routes)
    faults = Faults(world.seed)
    deliveries = Deliveries(world)
    world.deliveries = deliveries
    api = StripeApi(world, routes, faults)
    sim = sim_api(world, api=api, faults=faults, deliveries=deliveries)
    sim.router.lifespan_context = _lifespan(world, deliveries)
    return Application(world, api, sim)


def _lifespan(world: World, deliveries: Deliveries):  # type: ignore[no-untyped-def]  # noqa: ANN202 - Starlette's own form
    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        running = asyncio.create_task(world.agenda.run())
        yield
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await deliveries.close()

    return lifespan
