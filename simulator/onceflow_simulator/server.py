"""The simulator as a process: options, ready file, signals, the parent's death.

Rule: it listens on this machine only, says that it is ready in one atomic file, and never outlives its parent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn

from onceflow_simulator.app import build
from onceflow_simulator.books import Books
from onceflow_simulator.clock import Clock
from onceflow_simulator.connection import Connection
from onceflow_simulator.endpoints import EndpointRequest
from onceflow_simulator.knobs import Knobs
from onceflow_simulator.resources import webhook_endpoints
from onceflow_simulator.world import World, new_seed

HOST = "127.0.0.1"
API_KEY = "sk_test_simulator"
"""Letters and digits after the prefix, as Stripe's own keys have, so that whatever checks the form takes it."""

SECRET = "whsec_onceflow_simulator"  # noqa: S105 - everybody may know it: it signs nothing real
PLATFORM = "acct_simulator"
PARENT_POLL_SECONDS = 1.0
SHUTDOWN_SECONDS = 3
KEEP_ALIVE_SECONDS = 75
"""An idle connection outlives any client's own limit, so that only a scripted fault loses a request."""

BACKLOG = 2048


@dataclass(frozen=True)
class Options:
    """How to run it.

    Args:
        port: 0 takes a free one.
        state_file: written when ready: pid, url, secret, api_key, platform, seed.
        seed: None takes a new one, so that ids never repeat.
        start: where the clock stands still, in seconds since 1970; None follows the real clock.
        account: the platform's id.
        webhook_url: where to send events from the first one on.
        secret: of that endpoint.
        knobs: settings to begin with.
        parent_pid: end when this process is no longer the parent.
    """

    port: int = 0
    state_file: Path | None = None
    seed: int | None = None
    start: float | None = None
    account: str = PLATFORM
    webhook_url: str | None = None
    secret: str = SECRET
    knobs: Knobs = field(default_factory=Knobs)
    parent_pid: int | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until a signal."""
    return run(_options(arguments))


def run(options: Options) -> int:
    """Run until a signal; 0 when it ended as it should."""
    world = World(
        platform=options.account,
        seed=new_seed() if options.seed is None else options.seed,
        clock=Clock(start=options.start),
        knobs=options.knobs.model_copy(),
    )
    config = uvicorn.Config(
        build(world),
        http=Connection,
        loop="auto",
        lifespan="on",
        log_config=None,
        access_log=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        backlog=BACKLOG,
    )
    listening = socket.create_server((HOST, options.port), backlog=BACKLOG)
    server = _Server(config, world=world, options=options, url=f"http://{HOST}:{listening.getsockname()[1]}")
    with listening:
        server.run(sockets=[listening])
    return 0


class _Server(uvicorn.Server):
    """Uvicorn's server, that tells when it is ready and ends with its parent."""

    def __init__(self, config: uvicorn.Config, *, world: World, options: Options, url: str) -> None:
        super().__init__(config)
        self._world = world
        self._options = options
        self._url = url
        self._watch: asyncio.Task[None] | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take signals while it runs; unlike uvicorn's own, do not raise them again after a clean end."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        await super().startup(sockets=sockets)
        options = self._options
        self._world.begin = self._begin
        self._begin()
        if options.parent_pid is not None:
            self._watch = asyncio.create_task(self._end_with_parent(options.parent_pid))
        if options.state_file is not None:
            write_state(options.state_file, self._state())

    def _begin(self) -> None:
        options = self._options
        if options.webhook_url is not None:
            books = Books(self._world, self._world.account(options.account, livemode=False))
            webhook_endpoints.register(books, EndpointRequest(url=options.webhook_url, secrets=[options.secret]))

    def _state(self) -> dict[str, object]:
        return {
            "pid": os.getpid(),
            "url": self._url,
            "secret": self._options.secret,
            "api_key": API_KEY,
            "account": self._options.account,
            "seed": self._world.seed,
        }

    async def _end_with_parent(self, parent_pid: int) -> None:
        while os.getppid() == parent_pid:  # noqa: ASYNC110 - nobody tells of it: it has to be looked at
            await asyncio.sleep(PARENT_POLL_SECONDS)
        self.should_exit = True


def write_state(path: Path, state: dict[str, object]) -> None:
    """Write the ready file in one step, readable by its owner only."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(state, file)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _options(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m onceflow_simulator", description="A Stripe that loses answers.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port")
    parser.add_argument("--state-file", type=Path, help="is written when ready: pid, url, secret, api_key")
    parser.add_argument("--seed", type=int, help="of ids, faults and deliveries; without it nothing repeats")
    parser.add_argument("--start", type=float, help="let the clock stand at this time (seconds since 1970)")
    parser.add_argument("--account", default=PLATFORM, help="the platform's id")
    parser.add_argument("--webhook-url", help="where to send events")
    parser.add_argument("--secret", default=SECRET, help="of that endpoint")
    parser.add_argument("--knobs", default="{}", help='settings as JSON, such as {"latency_ms": 20}')
    parser.add_argument("--parent-pid", type=int, help="end when this process is no longer the parent")
    given = parser.parse_args(arguments)
    try:
        knobs = Knobs.model_validate_json(given.knobs)
    except ValueError as error:
        parser.error(f"--knobs: {error}")
    return Options(**{**vars(given), "knobs": knobs})
