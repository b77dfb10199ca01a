"""When nothing more is sent for an account, and until when: its limit is met, or its key is refused.

Rule: values in, values out.  A refused key fails no operation; the account waits, and one call at a time finds out whether
the key works again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from onceflow_schemas.operations.evidence import Evidence, Proof

PAUSE_SECONDS_FIRST = 5.0
PAUSE_SECONDS_MAX = 300.0
LIMITED_SECONDS = 1.0
"""After an answer "too many requests" that does not say how long."""

LIMITED_SECONDS_MAX = 300.0
_DOUBLINGS_MAX = 10

NOT_THE_ACCOUNT = frozenset({"lock_timeout"})
"""Codes of 429 that are about one object, not about the account's limit."""

_SAYS_NOTHING = frozenset(
    {
        Proof.UNAUTHORISED,
        Proof.NOT_SENT,
        Proof.LIMITED,
        Proof.UNKNOWN,
        Proof.LOOKUP_FAILED,
        Proof.LEASE_EXPIRED,
        Proof.ABANDONED,
    }
)
"""Proofs that do not show that a key works."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call to Stripe proved; ``probe`` when it was the one call that finds out whether a refused key works again."""

    account: str
    evidence: Evidence
    probe: bool


@dataclass(frozen=True, slots=True)
class Block:
    """Nothing is sent for this account for so many seconds.

    Attributes:
        account: whose calls wait.
        seconds: from now on.
        reason: why its key is refused; None when its limit is met.
        refusals: how often in a row its key has been refused.
    """

    account: str
    seconds: float
    reason: str | None
    refusals: int


def blocks(answers: Iterable[Answer], *, refusals: Mapping[str, int]) -> list[Block]:
    """Return which accounts are blocked by answers.

    Args:
        answers: of this round.
        refusals: paused accounts, and how often their key was refused in a row.  Many calls that were on their way when a
            key was refused are one refusal, so for these accounts only a probe counts.
    """
    found: dict[str, Block] = {}
    for answer in answers:
        account, evidence = answer.account, answer.evidence
        if evidence.proof is Proof.UNAUTHORISED and (answer.probe or account not in refusals):
            times = refusals.get(account, 0)
            found[account] = Block(account, pause_seconds(times), evidence.detail or "the key is refused", times + 1)
        elif evidence.proof is Proof.LIMITED and evidence.code not in NOT_THE_ACCOUNT and account not in found:
            asked = evidence.retry_after_seconds or LIMITED_SECONDS
            found[account] = Block(account, min(max(asked, LIMITED_SECONDS), LIMITED_SECONDS_MAX), None, 0)
    return [found[account] for account in sorted(found)]


def opened(answers: Iterable[Answer], *, blocked: Iterable[Block]) -> list[str]:
    """Return the paused accounts whose key was accepted now."""
    refused = {block.account for block in blocked if block.reason is not None}
    accepted = {one.account for one in answers if one.probe and one.evidence.proof not in _SAYS_NOTHING}
    return sorted(accepted - refused)


def pause_seconds(refusals: int) -> float:
    """Return how long an account waits after its key was refused, ``refusals`` times before."""
    return min(PAUSE_SECONDS_MAX, PAUSE_SECONDS_FIRST * 2.0 ** min(refusals, _DOUBLINGS_MAX))
