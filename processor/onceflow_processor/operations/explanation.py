"""Why an operation stands where it stands, in plain words: what a worker would do, and what holds workers off.

Rule: values in, words out.  What a worker would do is decided nowhere but in ``decide``; the rest is what the ledger says.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from onceflow_schemas.operations.limits import LIMITS, Limits
from onceflow_schemas.operations.operation import Operation
from onceflow_schemas.operations.why import why

OVERDUE = timedelta(seconds=30)
"""What has been due for so long, and is held off by nothing, finds no worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What else of the ledger has a say about an operation.

    Attributes:
        next_attempt_at: when a worker may look at it next; None when nothing is to be done.
        lease_owner, lease_until: who has it in hand; None without one.
        before: id and state of the one before it under the same order key that is not settled; None without one.
        blocked_until, paused_reason: of its account's calls to Stripe.
    """

    next_attempt_at: datetime | None
    lease_owner: str | None = None
    lease_until: datetime | None = None
    before: tuple[UUID, str] | None = None
    blocked_until: datetime | None = None
    paused_reason: str | None = None


def explain(operation: Operation, around: Around, *, now: datetime, limits: Limits = LIMITS) -> str:
    """Return why nothing is sent just now, and what happens next.

    Args:
        operation: as read.
        around: what else was read.
        now: database clock.
        limits: as the workers have them.
    """
    held = _held(operation, around, now)
    next_attempt_at = None if held else around.next_attempt_at
    words = why(operation, now=now, next_attempt_at=next_attempt_at, limits=limits)
    return " ".join([words, *([held] if held else [])])


def _held(operation: Operation, around: Around, now: datetime) -> str | None:
    """What keeps workers from taking it now."""
    due = around.next_attempt_at
    if due is None:
        return None
    if around.lease_until is not None and around.lease_until > now:
        return f"{around.lease_owner} has it in hand, until {_time(around.lease_until)} at the latest."
    if around.before is not None:
        return f"It waits for {around.before[0]} ({around.before[1]}), asked for before it with the same order key."
    if around.blocked_until is not None and around.blocked_until > now:
        until = _time(around.blocked_until)
        if around.paused_reason is None:
            return f"The limit of {operation.account} is met; no call is made before {until}."
        return f"{operation.account} is paused ({around.paused_reason}); one call is tried at {until}."
    if due < now - OVERDUE:
        # A worker without a mail server leaves mails to those that have one.
        server = ", and with a mail server (mail.host)" if operation.present.kind == "mail" else ""
        return (
            f"It has been due since {_time(due)} and no worker takes it: is `onceflow operate` running, with the effect "
            f"{operation.effect} and the account {operation.account}{server}?"
        )
    return None


def _time(when: datetime) -> str:
    return when.strftime("%Y-%m-%d %H:%M:%S UTC")
