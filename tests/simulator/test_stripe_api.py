"""The way of one request: a bug of the simulator on it is told as one, wherever it is."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from onceflow_simulator.faults import Faults, Subject
from onceflow_simulator.resources import add_all
from onceflow_simulator.routes import Routes
from onceflow_simulator.stripe_api import StripeApi
from onceflow_simulator.world import World

SCOPE = {
    "type": "http",
    "method": "GET",
    "path": "/v1/account",
    "query_string": b"",
    "headers": [(b"authorization", b"Bearer sk_test_1")],
}


class Broken(Faults):
    """Raises where no handler does."""

    def pick(self, subject: Subject, *, now: float) -> None:
        raise ZeroDivisionError(f"{subject.path} at {now}")


@pytest.mark.parametrize(("faults", "status", "bugs"), [(Faults(1), 200, 0), (Broken(1), 500, 1)])
def test_a_bug_is_told_as_one(faults: Faults, status: int, bugs: int) -> None:
    routes, sent = Routes(), list[MutableMapping[str, Any]]()
    add_all(routes)
    world = World(platform="acct_1", seed=1)
    api = StripeApi(world, routes, faults)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    asyncio.run(api(SCOPE, receive, send))
    assert (sent[0]["status"], len(world.bugs)) == (status, bugs)
    assert all("ZeroDivisionError: /v1/account at" in bug for bug in world.bugs)
