"""The third act: one event breaks its handler, those behind it wait, the handler is mended, and all go on in their order.

Rule: the act does what an operator does, with the commands that an operator has; what became of it is read from the tables
and left to the count.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from onceflow.demo.delivery import Attempt, StripeLikeSender
from onceflow.demo.ledgers import CONNECT_SECONDS
from onceflow.demo.running_system import Ready, RunningSystem
from onceflow.demo.stripe_events import StripeEvent
from onceflow.demo.traffic import Request
from onceflow_schemas.failure import Unavailable
from onceflow_schemas.sql import queries

HANDLERS_FILE = "shop_handlers.py"
HANDLERS = "shop_handlers:handlers"
"""What the processor of the demo loads: the file is replaced when the handler has been mended."""

BROKEN, MENDED = (Path(__file__).with_name(name) for name in ("products_broken.py", "products_mended.py"))
TYPE = "product.updated"
NAMES = ("Lamp", "Reading lamp", "Lamp, unnamed", "Desk lamp", "Desk lamp, brass")
"""What one product is called, one after the other; the third change takes its description away."""

POISONED = 2
SEEN_SECONDS = 30.0
COMMAND_SECONDS = 60.0
STEP_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Poison:
    """The events of the act: changes of one product in their order, and one change of another product."""

    changes: list[StripeEvent]
    neighbour: StripeEvent

    @property
    def events(self) -> list[StripeEvent]:
        """All of them."""
        return [*self.changes, self.neighbour]

    @property
    def poisoned(self) -> StripeEvent:
        """The one that the handler cannot take."""
        return self.changes[POISONED]


@dataclass(frozen=True, slots=True)
class Mended:
    """What the act saw: the states before the handler was mended, and how many events a replay of the topic would run."""

    states: dict[str, str]
    replay_runs: int


def plan_poison(*, seed: int, now: int) -> Poison:
    """Return the events of the act.

    Args:
        seed: part of the ids.
        now: unix seconds of the first change.
    """
    changes = [
        _event(f"evt_product{seed}x{number}", f"prod_lamp{seed}", name, number=number, now=now)
        for number, name in enumerate(NAMES)
    ]
    return Poison(changes, _event(f"evt_product{seed}other", f"prod_chair{seed}", "Chair", number=0, now=now))


def _event(event_id: str, product: str, name: str, *, number: int, now: int) -> StripeEvent:
    described = None if number == POISONED else f"{name} of the demo"
    subject = {"id": product, "object": "product", "active": True, "name": name, "description": described}
    body = {
        "id": event_id,
        "object": "event",
        "api_version": "2025-03-31.basil",
        "created": now + number,
        "data": {"object": subject},
        "livemode": False,
        "request": None,
        "type": TYPE,
    }
    return StripeEvent(event_id, TYPE, product, json.dumps(body, indent=2).encode())


def deploy(handlers: Path, folder: Path) -> None:
    """Put a file of handlers where the processor loads them from."""
    shutil.copyfile(handlers, folder / HANDLERS_FILE)


class PoisonAct:
    """Plays the act on a running system.

    Args:
        system: started with ``HANDLERS``, the broken ones deployed in its folder.
        poison: what is sent.
        say: tells what happens.
    """

    def __init__(self, system: RunningSystem, poison: Poison, *, say: Callable[[str], None]) -> None:
        self.attempts: list[Attempt] = []
        self._system = system
        self._poison = poison
        self._say = say
        self._pause = threading.Event()

    def play(self, *, seed: int) -> Mended:
        """Send, break, mend, retry, and ask what a replay of the whole topic would do.

        Raises:
            Unavailable: a state was not reached in time, or a command failed.
        """
        poison = self._poison
        self._send(seed)
        states = self._wait_for(lambda found: found[poison.changes[-1].id] == "parked" and _rests(found))
        self._say(
            f"{len(poison.changes)} changes of one product: {_in_words(poison, states)}; the other product's is {states[poison.neighbour.id]}"
        )
        self._tell(self._command("quarantine", "list", "--type", TYPE))
        deploy(MENDED, self._system.folder)
        self._restart_processor()
        self._say(
            "the handler is mended and deployed; now the poisoned event is tried again, and those behind it follow"
        )
        retry = (
            "quarantine",
            "retry",
            "--event-id",
            poison.poisoned.id,
            "--execute",
            "--reason",
            "null descriptions are read now",
        )
        self._command(*retry)
        done = self._wait_for(lambda found: set(found.values()) == {"processed"})
        self._say(f"{_in_words(poison, done)}; a replay of the whole topic, as a dry run:")
        replay = json.loads(self._command("replay", "--topic", self._system.ready.event_topic, "--json"))
        self._say(_replay_in_words(replay))
        return Mended(states, replay["fates"].get("run", 0))

    def _send(self, seed: int) -> None:
        """One sender, so that the order on the wire is the order in the topic."""
        sender = StripeLikeSender(
            lambda: (self._system.ready.webhook_url, self._system.ready.webhook_secret), seed=seed, senders=1
        )
        try:
            for event in self._poison.events:
                sender.send(Request("event", event.body))
            sender.finish()
        finally:
            sender.abandon()
        self.attempts = sender.attempts

    def _restart_processor(self) -> None:
        pid = self._system.kill("processor")
        self._system.wait_for_successor("processor", pid)

    def _wait_for(self, reached: Callable[[dict[str, str]], bool]) -> dict[str, str]:
        """Wait until the states of the act's events are as asked for; return them by event id.

        Raises:
            Unavailable: they are not in time.
        """
        end = time.monotonic() + SEEN_SECONDS
        while not reached(states := _states(self._system.ready, self._poison.events)):
            if time.monotonic() > end:
                raise Unavailable("service_failed", f"the events of the third act stand still at {states}")
            self._pause.wait(STEP_SECONDS)
        return states

    def _command(self, *arguments: str) -> str:
        """Run a command of ours as an operator does; return what it wrote to standard output.

        Raises:
            Unavailable: it ended with another code than 0.
        """
        argv = [sys.executable, "-m", "onceflow", *arguments]
        environment = {**self._system.environment, **self._system.ready.environment}
        done = subprocess.run(
            argv,
            cwd=self._system.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise Unavailable(
                "service_failed", f"`onceflow {' '.join(arguments)}` ended with {done.returncode}: {done.stderr[-400:]}"
            )
        self._say(f"$ onceflow {shlex.join(arguments)}")
        return done.stdout

    def _tell(self, output: str) -> None:
        for line in output.splitlines():
            self._say(f"  {line}")


def _states(ready: Ready, events: Sequence[StripeEvent]) -> dict[str, str]:
    """The states of events by id; an event that has no marker yet is ``new``."""
    with psycopg.connect(ready.database_url, connect_timeout=CONNECT_SECONDS) as connection:
        found: dict[str, str] = dict(
            connection.execute(
                queries("demo_count")["states"], {"event_ids": [event.id for event in events]}
            ).fetchall()
        )
    return {event.id: found.get(event.id, "new") for event in events}


def _rests(states: dict[str, str]) -> bool:
    return "new" not in states.values()


def _in_words(poison: Poison, states: dict[str, str]) -> str:
    return ", ".join(states[event.id] for event in poison.changes)


def _replay_in_words(replay: dict[str, Any]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in replay["fates"].items())
