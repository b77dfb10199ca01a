"""An object at Stripe beside the operation that it names.

Rule: only objects that carry an operation's id are judged, by their status, amount and currency; what the operation does not know
yet is a reason to look, and whatever contradicts it is for a person.  Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal
from uuid import UUID

from onceflow_schemas.operations.operation import DEPLOYMENT_KEY, METADATA_KEY

Verdict = Literal["object_without_operation", "operation_doubled", "operation_disagrees", "operation_behind"]

_MOVED: Final[Mapping[str, frozenset[str]]] = {
    "payment_intent": frozenset({"succeeded", "requires_capture", "processing"}),
    "refund": frozenset({"succeeded", "pending", "requires_action"}),
}
"""Statuses in which money is moved, or may be on its way."""

_RETURNED: Final = frozenset({"failed", "canceled"})
ENDED: Final = frozenset({"succeeded", "failed", "canceled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the ledger says of an operation."""

    state: str
    external_id: str | None
    surplus: frozenset[str]
    amount: int | None
    currency: str | None
    effect: str
    subject: str


@dataclass(frozen=True, slots=True)
class Drift:
    """What is wrong, and why in plain words; ``state`` is the operation's."""

    verdict: Verdict
    why: str
    state: str | None = None


def operation_id_of(body: Mapping[str, Any]) -> UUID | None:
    """Return the id of the operation that an object names; None when it names none, or something else."""
    metadata = body.get("metadata")
    named = metadata.get(METADATA_KEY) if isinstance(metadata, Mapping) else None
    try:
        return UUID(named) if isinstance(named, str) else None
    except ValueError:
        return None


def object_subject(account: str, mode: str, object_id: str) -> str:
    """Return what a finding about an object is about."""
    return f"object {account}/{mode}/{object_id}"


def compare_object(body: Mapping[str, Any], known: Known | None, *, deployment: str) -> Drift | None:
    """Return what is wrong between an object and the operation that it names; None when nothing is.

    Args:
        body: the object, with the id of the operation in its metadata.
        known: the operation; None when there is none.
        deployment: ours.
    """
    if known is None and body["metadata"].get(DEPLOYMENT_KEY, deployment) != deployment:
        # The operation is another deployment's on the same account.  Who names none may be anybody.
        return None
    drift = _drift(body, known)
    return None if drift is None else replace(drift, state=None if known is None else known.state)


def _drift(body: Mapping[str, Any], known: Known | None) -> Drift | None:
    status = str(body.get("status"))
    moved = status in _MOVED.get(str(body.get("object")), frozenset())
    if known is None:
        return Drift("object_without_operation", f"no operation has this id, and it is {status}") if moved else None
    if known.external_id is None:
        return Drift("operation_behind", f"it is {status}, and the operation does not know it") if moved else None
    if body.get("id") != known.external_id:
        if not moved:
            return None
        return Drift(
            "operation_doubled", f"the operation's object is {known.external_id}, and this one is {status} too"
        )
    wrong = _wrong_value(body, known)
    if wrong is not None:
        return Drift("operation_disagrees", wrong)
    if known.state not in ENDED:
        return None
    if body.get("object") == "refund" and status in _RETURNED and known.state == "succeeded":
        # It comes to an end that operations know: their workers look, and settle it anew.
        return Drift("operation_behind", f"the refund is {status} after it had succeeded")
    if moved == (known.state == "succeeded"):
        return None
    return Drift("operation_disagrees", f"the operation has {known.state}, and its object is {status}")


def _wrong_value(body: Mapping[str, Any], known: Known) -> str | None:
    if known.amount is not None and body.get("amount") != known.amount:
        return f"the amount is {body.get('amount')}, asked was {known.amount}"
    if known.currency is not None and str(body.get("currency")).lower() != known.currency.lower():
        return f"the currency is {body.get('currency')}, asked was {known.currency}"
    return None
