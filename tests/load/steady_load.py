"""A steady stream of signed webhooks, some of them repeated, some forged, from a seed, until it is told to stop.

Rule: events and delivery are those of ``onceflow demo`` (one generator, one sender that behaves like Stripe); what the
checker gets is only the list of what was sent and what was answered.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from random import Random
from types import TracebackType
from typing import Self

from onceflow.demo.delivery import Attempt, StripeLikeSender
from onceflow.demo.stripe_events import stripe_events
from onceflow.demo.traffic import Request
from tests.checker.snapshot import Delivery
from tests.checker.waiting import wait_for

REPEAT_SHARE = 0.15
FORGED_SHARE = 0.01
EVENTS_MAX = 20_000
PAGE_EVENTS = 200
SENT_SECONDS = 60.0


def delivery_of(attempt: Attempt, codes: frozenset[str] = frozenset()) -> Delivery:
    """Return what the checker needs to know about an attempt."""
    digest = hashlib.sha256(attempt.request.body).digest()
    return Delivery(digest, attempt.status, signed=attempt.request.kind != "forged", codes=codes)


class SteadyLoad:
    """Sends about ``per_second`` webhooks until ``stop``; a context manager.

    Args:
        target: returns (webhook URL, secret) as they are now.
        seed: of events, repeats and forgeries.
        per_second: how fast; slower while requests wait for their retries.
    """

    def __init__(self, target: Callable[[], tuple[str, str]], *, seed: int, per_second: float) -> None:
        self.sender = StripeLikeSender(target, seed=seed)
        self._seed = seed
        self._per_second = per_second
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(abandon=error is not None)

    def stop(self, *, abandon: bool = False) -> None:
        """Send nothing new and wait until all that was sent is answered with a 2xx."""
        self._stopping.set()
        if abandon:
            self.sender.abandon()
        self._thread.join()
        self.sender.finish()

    def wait_for_answers(self, more: int) -> None:
        """Wait until so many more webhooks were answered with 200."""
        goal = self.sender.answered + more
        wait_for(lambda: self.sender.answered >= goal, limit_seconds=SENT_SECONDS, what=f"{more} more answers of 200")

    def deliveries(self) -> Sequence[Delivery]:
        """Every request that was sent, with its answer."""
        return [delivery_of(attempt) for attempt in self.sender.attempts]

    def broken(self) -> int:
        """How many requests were refused or broken off; forgeries not counted."""
        return sum(1 for attempt in self.sender.attempts if attempt.status != 200 and attempt.request.kind != "forged")

    def _feed(self) -> None:
        random = Random(self._seed)
        sent: list[bytes] = []
        for page in range(EVENTS_MAX // PAGE_EVENTS):
            seed = self._seed + page
            forged = iter(stripe_events(seed=-1 - seed, count=PAGE_EVENTS, now=int(time.time())))
            for event in stripe_events(seed=seed, count=PAGE_EVENTS, now=int(time.time())):
                requests = [Request("event", event.body)]
                sent.append(event.body)
                if random.random() < REPEAT_SHARE:
                    requests.append(Request("repeat", random.choice(sent)))
                if random.random() < FORGED_SHARE:
                    requests.append(Request("forged", next(forged).body))
                for request in requests:
                    if self._stopping.wait(1 / self._per_second):
                        return
                    self.sender.send(request)
