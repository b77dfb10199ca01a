"""Idempotency keys of one account, as version 1 of Stripe's interface keeps them.

Rule: the first answer of a request that began to execute is kept and given again byte for byte, whatever it was; after
the key's life it is forgotten, and the same request executes anew.  That is what makes a late blind retry a second charge.
"""

from __future__ import annotations

from dataclasses import dataclass

from onceflow_simulator import errors
from onceflow_simulator.answers import Answer


@dataclass
class Kept:
    """What is known of a key.

    Args:
        path: the address of the first request.
        fingerprint: its parameters, in one canonical form.
        since: when it was first used, in seconds of the simulator's clock.
        request_id: of the first request.
        answer: None while the first request is in flight.
    """

    path: str
    fingerprint: bytes
    since: float
    request_id: str
    answer: Answer | None = None


class Keys:
    """The keys of one account and mode."""

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}

    def find(self, key: str, asked: Kept, *, life_seconds: float) -> Kept | None:
        """What is kept under the key, with an answer to give again; None when the request must execute.

        Args:
            asked: the request as it would be kept now.

        Raises:
            StripeError: the key is in flight (409), or was used for something else (400).
        """
        kept = self._kept.get(key)
        if kept is None:
            return None
        if kept.answer is None:
            raise errors.in_flight(key)
        if asked.since - kept.since >= life_seconds:
            del self._kept[key]
            return None
        if kept.path != asked.path:
            raise errors.other_endpoint(key, kept.path)
        if kept.fingerprint != asked.fingerprint:
            raise errors.other_parameters(key)
        return kept

    def begin(self, key: str, kept: Kept) -> None:
        """Take the key for a request that is about to execute."""
        self._kept[key] = kept

    def keep(self, key: str, answer: Answer) -> None:
        """Keep the answer; one that is there already stays (a repaired failure never changes what was answered)."""
        kept = self._kept.get(key)
        if kept is not None and kept.answer is None:
            kept.answer = answer

    def prune(self) -> None:
        """Forget every key that is not in flight, as Stripe may once a key is a day old."""
        self._kept = {key: kept for key, kept in self._kept.items() if kept.answer is None}
