"""Deliveries of events to endpoints: signed anew each time, tried again until 2xx, late, doubled, swapped or dropped.

Rule: any 2xx is delivered, everything else is not; an event that was given up stays undelivered, as its list shows.
When a delivery is due is a matter of the simulator's clock; its signature says when it was really sent, since receivers
judge its age by their own clock, which nobody moves.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import orjson

from onceflow_simulator.emission import thin
from onceflow_simulator.endpoints import Endpoint
from onceflow_simulator.event_log import Emitted
from onceflow_simulator.http_post import post
from onceflow_simulator.signing import signature_header
from onceflow_simulator.world import Account, World

IN_FLIGHT_MAX = 64


class Deliveries:
    """All endpoints and what was sent to them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._slots = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self.endpoints: dict[str, Endpoint] = {}
        self.attempts: list[dict[str, Any]] = []
        self.waiting = 0

    def take(self, account: Account, emitted: Emitted) -> None:
        """Send a new event to everybody who wants it."""
        for endpoint in self.endpoints.values():
            if endpoint.wants(account, emitted.body):
                emitted.undelivered.add(endpoint.id)
                self.schedule(endpoint, account=account, emitted=emitted)

    def schedule(self, endpoint: Endpoint, *, account: Account, emitted: Emitted) -> None:
        """Plan the first try, with the endpoint's troubles."""
        knobs, world = endpoint.settings, self._world
        if world.chance(knobs.drop):
            endpoint.dropped.add(emitted.body["id"])
            return
        delay = knobs.delay_seconds
        if world.chance(knobs.reorder):
            delay += world.between(0.0, knobs.reorder_seconds)
        for _ in range(2 if world.chance(knobs.duplicate) else 1):
            if knobs.snapshot:
                self._plan(endpoint, account, emitted, n=1, kind="snapshot", delay=delay)
            if knobs.thin:
                self._plan(endpoint, account, emitted, n=1, kind="thin", delay=delay)

    def forget(self) -> None:
        """No endpoints, nothing planned, nothing told; what is on its way is cut off."""
        for task in self._tasks:
            task.cancel()
        self.endpoints.clear()
        self.attempts.clear()
        self.waiting = len(self._tasks)

    async def close(self) -> None:
        """End what is on its way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _plan(self, endpoint: Endpoint, account: Account, emitted: Emitted, *, n: int, kind: str, delay: float) -> None:
        self.waiting += 1

        def begin() -> None:
            task = asyncio.get_running_loop().create_task(self._attempt(endpoint, account, emitted, n=n, kind=kind))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

        if delay > 0:
            self._world.agenda.after(delay, begin)
        else:
            begin()

    async def _attempt(self, endpoint: Endpoint, account: Account, emitted: Emitted, *, n: int, kind: str) -> None:
        async with self._slots:
            if not endpoint.enabled or self.endpoints.get(endpoint.id) is not endpoint:
                return
            note = await self._send(endpoint, account, emitted, n=n, kind=kind)
        if endpoint.id not in self.endpoints:
            return
        self.attempts.append(note)
        if note["status"] is not None and 200 <= note["status"] < 300:  # noqa: PLR2004 - 2xx
            emitted.undelivered.discard(endpoint.id)
        elif n <= endpoint.settings.retries_max:
            pauses = self._world.knobs.retry_seconds
            pause = pauses[min(n, len(pauses)) - 1] * endpoint.settings.retry_scale if pauses else 0.0
            self._plan(endpoint, account, emitted, n=n + 1, kind=kind, delay=max(pause, 0.001))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.waiting -= 1

    async def _send(
        self, endpoint: Endpoint, account: Account, emitted: Emitted, *, n: int, kind: str
    ) -> dict[str, Any]:
        body = self._body(endpoint, account, emitted, kind=kind)
        signature = signature_header(body, at=int(time.time()), secrets=endpoint.settings.secrets)
        note: dict[str, Any] = {
            "event": emitted.thin_id if kind == "thin" else emitted.body["id"],
            "type": emitted.body["type"],
            "endpoint": endpoint.id,
            "kind": kind,
            "attempt": n,
            "at": self._world.clock.seconds(),
            "signature": signature,
            "status": None,
            "error": None,
        }
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "User-Agent": "Stripe/1.0 (+https://stripe.com/docs/webhooks)",
            "Stripe-Signature": signature,
        }
        timeout = self._world.knobs.delivery_timeout_seconds
        try:
            note["status"] = await post(endpoint.settings.url, body, headers=headers, timeout_seconds=timeout)
        except (OSError, TimeoutError, ValueError) as error:
            note["error"] = f"{type(error).__name__}: {error}"
        return note

    def _body(self, endpoint: Endpoint, account: Account, emitted: Emitted, *, kind: str) -> bytes:
        if kind == "thin":
            return orjson.dumps(thin(emitted, account))
        event = dict(emitted.shown())
        if endpoint.settings.api_version is not None:
            event["api_version"] = endpoint.settings.api_version
        return orjson.dumps(event, option=orjson.OPT_INDENT_2)
