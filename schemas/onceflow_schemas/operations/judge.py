"""What a Stripe object proves for a step, whether it came as an answer, from a look-up or after a webhook.

Rule: only a status that is known, on an object that is ours and says what was asked, is good news; any other status,
amount, currency, account mode or kind of object is for a person.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from onceflow_schemas.operations.evidence import Evidence, Proof
from onceflow_schemas.operations.freeze import STORED
from onceflow_schemas.operations.operation import METADATA_KEY, Operation, Role, Step
from onceflow_schemas.operations.resources import AUTHORISED, CHARGED, INTENT_MADE, MADE, action_of
from onceflow_schemas.quoting import quoted

_KEPT = (
    "id",
    "object",
    "status",
    "amount",
    "amount_received",
    "currency",
    "created",
    "latest_charge",
    "charge",
    "payment_intent",
    "failure_reason",
    "failure_code",
    "cancellation_reason",
)
"""Fields worth keeping: what a person or a callback needs, no personal data."""

_ACTIVE = frozenset({"processing", "requires_capture", "succeeded"})
"""Statuses of an intent that has been confirmed with success or may be."""


def judge(step: Step, found: Any, *, operation: Operation, from_lookup: bool = False) -> Evidence:
    """Return what one object proves for a step.

    Args:
        step: the step that was sent or is looked up.
        found: the decoded JSON.
        operation: whose step it is.
        from_lookup: it was read, not answered to a send.
    """
    if not isinstance(found, Mapping) or not isinstance(found.get("id"), str) or "error" in found:
        return Evidence(proof=Proof.UNKNOWN, from_lookup=from_lookup, detail="the answer is no object")
    kept = {name: found[name] for name in _KEPT if isinstance(found.get(name), str | int)}
    status = found.get("status")
    said = Evidence(
        proof=Proof.STRANGE,
        from_lookup=from_lookup,
        external_id=found["id"],
        status=status if isinstance(status, str) else None,
        object=kept,
    )
    if strange := _strange(step, found, operation, from_lookup=from_lookup):
        return replace(said, detail=strange)
    return _by_status(step, found, said)


def judge_list(step: Step, found: Sequence[Any], *, operation: Operation) -> Evidence:
    """Return what a complete list proves: ``found`` are its objects that carry the operation's id."""
    judged = [judge(step, each, operation=operation, from_lookup=True) for each in found]
    if not judged:
        return Evidence(proof=Proof.ABSENT, from_lookup=True, detail="a complete list has nothing of it")
    if step.name == Role.CREATE:
        return _one_intent(judged, operation)
    if len(judged) == 1:
        return judged[0]
    return _several(judged)


def is_ours(found: Any, operation: Operation) -> bool:
    """Whether an object of a list carries the operation's id."""
    metadata = found.get("metadata") if isinstance(found, Mapping) else None
    return isinstance(metadata, Mapping) and metadata.get(METADATA_KEY) == str(operation.id)


def _strange(step: Step, found: Mapping[str, Any], operation: Operation, *, from_lookup: bool) -> str:
    expect = dict(step.expect or {})
    kind = expect.pop("object", found.get("object"))
    if found.get("object") != kind:
        return f"the object is a {quoted(found.get('object'), 40)}, not a {kind}"
    if expect.pop("operation", None) is not None and not is_ours(found, operation):
        return "the object does not carry the operation's id"
    if found.get("livemode", operation.mode == "live") is not (operation.mode == "live"):
        return "the object is of the other mode"
    asked = operation.external_id
    if not from_lookup and STORED in str(step.request.get("path")) and asked is not None and found["id"] != asked:
        return f"the answer is about {quoted(found['id'])}, not about {asked}"
    for name, value in expect.items():
        if found.get(name) != value:
            return f"{name} is {quoted(found.get(name), 40)}, asked was {quoted(value, 40)}"
    if step.name in (Role.CONFIRM, Role.CANCEL) and found.get("status") == "succeeded":
        return _wrong_receipt(found, expect)
    return ""


def _wrong_receipt(found: Mapping[str, Any], expect: Mapping[str, Any]) -> str:
    """A captured sum may be less than an authorised one; a charge is the whole amount."""
    received, amount = found.get("amount_received"), expect["amount"]
    if received == amount or (
        expect.get("capture_method") == "manual" and type(received) is int and received <= amount
    ):
        return ""
    return f"amount_received is {quoted(received, 40)}, asked was {amount}"


def _by_status(step: Step, found: Mapping[str, Any], said: Evidence) -> Evidence:
    statuses = _statuses(step)
    if not statuses:
        return replace(said, proof=Proof.DONE)
    proof = statuses.get(str(said.status))
    if proof is None:
        return replace(said, detail=f"the status {quoted(found.get('status'), 40)} is not known")
    error = found.get("last_payment_error")
    if said.status == "requires_payment_method" and proof is Proof.OPEN and isinstance(error, Mapping):
        code = error.get("decline_code") or error.get("code")
        return replace(said, proof=Proof.DECLINED, code=code if isinstance(code, str) else "declined")
    return replace(said, proof=proof)


def _statuses(step: Step) -> Mapping[str, Proof]:
    """What each status proves for a step; empty when being there is all."""
    if step.name == Role.CREATE:
        return INTENT_MADE
    if step.name in (Role.CONFIRM, Role.CANCEL):
        return AUTHORISED if (step.expect or {}).get("capture_method") == "manual" else CHARGED
    if step.lookup and "statuses" in step.lookup:
        return {status: Proof(proof) for status, proof in step.lookup["statuses"].items()}
    path = step.request["path"]
    if made := MADE.get(path):
        return made.statuses
    action = action_of(path)
    return action.statuses if action else {}


def _several(judged: Sequence[Evidence]) -> Evidence:
    ids = sorted(str(each.external_id) for each in judged)
    return Evidence(
        proof=Proof.SEVERAL,
        from_lookup=True,
        object={"ids": ids},
        detail=f"{len(ids)} objects carry the operation's id",
    )


def _one_intent(judged: Sequence[Evidence], operation: Operation) -> Evidence:
    """Of several intents of one charge one is kept: the stored one, else one that is confirmed, else the oldest."""
    if strange := [each for each in judged if each.proof is Proof.STRANGE]:
        return strange[0]
    live = [each for each in judged if each.proof is not Proof.ENDED]
    if sum(each.status in _ACTIVE for each in live) > 1:
        return _several(live)
    kept = min(live or judged, key=lambda each: _rank(each, operation))
    return replace(kept, surplus=tuple(sorted(str(each.external_id) for each in live if each is not kept)))


def _rank(each: Evidence, operation: Operation) -> tuple[bool, bool, int, str]:
    created = (each.object or {}).get("created", 0)
    return each.external_id != operation.external_id, each.status not in _ACTIVE, created, str(each.external_id)
