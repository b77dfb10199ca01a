"""The states of a PaymentIntent and what leads from one to another.

Rule: pure, and everything that decides a status stands in this file; whoever changes an intent asks here first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from onceflow_simulator.sample_methods import Method


class Status(StrEnum):
    """All seven statuses."""

    REQUIRES_PAYMENT_METHOD = "requires_payment_method"
    REQUIRES_CONFIRMATION = "requires_confirmation"
    REQUIRES_ACTION = "requires_action"
    PROCESSING = "processing"
    REQUIRES_CAPTURE = "requires_capture"
    SUCCEEDED = "succeeded"
    CANCELED = "canceled"


Action = Literal["confirm", "capture", "cancel", "update"]

ALLOWED: dict[Action, frozenset[Status]] = {
    "confirm": frozenset({Status.REQUIRES_PAYMENT_METHOD, Status.REQUIRES_CONFIRMATION, Status.REQUIRES_ACTION}),
    "capture": frozenset({Status.REQUIRES_CAPTURE}),
    "cancel": frozenset(
        {
            Status.REQUIRES_PAYMENT_METHOD,
            Status.REQUIRES_CONFIRMATION,
            Status.REQUIRES_ACTION,
            Status.REQUIRES_CAPTURE,
        }
    ),
    "update": frozenset({Status.REQUIRES_PAYMENT_METHOD, Status.REQUIRES_CONFIRMATION, Status.REQUIRES_ACTION}),
}
"""In which status each action may be taken; money in processing or taken is no longer an intent's to change."""


@dataclass(frozen=True)
class Verdict:
    """What a confirm leads to.

    Args:
        charge: the status of the charge that is made; None makes none.
        refused: the confirm is answered 402, and the intent stays to be confirmed again.
    """

    status: Status
    charge: Literal["succeeded", "pending", "failed"] | None
    refused: bool = False


def allowed(action: Action, status: str) -> bool:
    """Whether an action may be taken in a status."""
    return status in ALLOWED[action]


def after_create(*, has_method: bool) -> Status:
    """The status of an intent that is not confirmed."""
    return Status.REQUIRES_CONFIRMATION if has_method else Status.REQUIRES_PAYMENT_METHOD


def after_confirm(method: Method, *, manual_capture: bool, off_session: bool, error_on_action: bool) -> Verdict:
    """What confirming with a payment method leads to.

    Args:
        off_session: the customer is not there to authenticate: what needs it is declined.
        error_on_action: the same, asked for by the request.
    """
    match method.course:
        case "declined":
            return Verdict(Status.REQUIRES_PAYMENT_METHOD, "failed", refused=True)
        case "authenticates" if off_session or error_on_action:
            return Verdict(Status.REQUIRES_PAYMENT_METHOD, "failed" if off_session else None, refused=True)
        case "authenticates":
            return Verdict(Status.REQUIRES_ACTION, None)
        case "processing":
            return Verdict(Status.PROCESSING, "pending")
        case "succeeds":
            return Verdict(Status.REQUIRES_CAPTURE if manual_capture else Status.SUCCEEDED, "succeeded")
