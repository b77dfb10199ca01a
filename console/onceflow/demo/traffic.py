"""What is sent, in which order: a whole afternoon of webhooks shuffled by one seed.

Rule: the plan is pure.  Its numbers are the demo's promise (2,000 requests: 300 of them repeats, 20 with a wrong
signature, 10 odd ones), and retries after a refusal come on top of them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from random import Random
from typing import Literal

from onceflow.demo.oddities import Oddity, oddities
from onceflow.demo.stripe_events import StripeEvent, stripe_events

REQUESTS = 2_000
REPEATS = 300
FORGERIES = 20

Kind = Literal["event", "repeat", "odd", "forged"]


@dataclass(frozen=True, slots=True)
class Request:
    """One webhook to send; a ``forged`` one gets a wrong signature."""

    kind: Kind
    body: bytes

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the body, by which the topic is searched for it."""
        return hashlib.sha256(self.body).digest()


@dataclass(frozen=True, slots=True)
class Plan:
    """All requests in their order, and what they were made from."""

    requests: list[Request]
    events: list[StripeEvent]
    odd: list[Oddity]

    def joined(self, events: list[StripeEvent]) -> Plan:
        """Return the plan with events that were sent beside it."""
        return Plan(
            [*self.requests, *(Request("event", event.body) for event in events)], [*self.events, *events], self.odd
        )


def plan_traffic(*, seed: int, now: int, count: int = REQUESTS) -> Plan:
    """Return the plan of a demo.

    Args:
        seed: of everything random.
        now: unix seconds, for the creation times of the events.
        count: how many requests; the shares of repeats and forgeries are those of 2,000.
    """
    random = Random(seed)  # noqa: S311 - test data, must repeat
    odd = oddities(random, created=now)
    repeats, forgeries = count * REPEATS // REQUESTS, count * FORGERIES // REQUESTS
    events = stripe_events(seed=seed, count=count - repeats - forgeries - len(odd), now=now)
    forged = stripe_events(seed=seed + 1, count=forgeries, now=now)
    requests = [Request("event", event.body) for event in events] + [Request("odd", item.body) for item in odd]
    requests += [Request("repeat", random.choice(requests).body) for _ in range(repeats)]
    requests += [Request("forged", event.body) for event in forged]
    random.shuffle(requests)
    return Plan(requests, events, odd)
