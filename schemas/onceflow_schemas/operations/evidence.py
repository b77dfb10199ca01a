"""Evidence: what an attempt, a look-up, a webhook or a person proved, and nothing more.

Rule: senders translate every answer and every exception into one of these; whatever they cannot place is ``UNKNOWN``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Proof(StrEnum):
    """What is proved."""

    DONE = "done"
    """The step's effect is there: ``object`` says how it stands (final and as expected)."""
    PROCESSING = "processing"
    """The object is there; the other side has not decided (``processing``, a refund's ``pending``)."""
    NEEDS_ACTION = "needs_action"
    """The object waits for a person (3-D Secure)."""
    OPEN = "open"
    """The object is there and nothing has happened with it: an intent ``requires_confirmation`` or ``requires_payment_method``
    without an attempt."""
    DECLINED = "declined"
    """Executed and refused by the bank; certain for this attempt, yet the object may still be open."""
    REFUSED = "refused"
    """The other side refused the request for what it says (400, 404); nothing happened in this attempt."""
    ENDED = "ended"
    """The object is closed for good without the effect: intent ``canceled``, refund ``failed`` or ``canceled``."""
    NOT_SENT = "not_sent"
    """No byte of the request can have been executed: refused connection, name not found."""
    LIMITED = "limited"
    """Refused before execution, for now: 429."""
    UNAUTHORISED = "unauthorised"
    """Refused for the key: 401, 403; ``detail`` names the missing permission where the answer does."""
    BUSY = "busy"
    """Another request with this key is in flight: 409."""
    KEY_MISMATCH = "key_mismatch"
    """The key was used with other parameters: an earlier request ran."""
    UNKNOWN = "unknown"
    """Timeout, reset, 5xx, 424, unreadable answer, redirect: it may have happened."""
    STORED_FAILURE = "stored_failure"
    """The key's stored answer is a failure that does not say what happened (500): this key will never say more."""
    STRANGE = "strange"
    """An answer that no rule covers: other amount, currency or object than asked, a status nobody knows."""
    ABSENT = "absent"
    """A complete list, read at ``at``, has nothing of ours."""
    SEVERAL = "several"
    """More than one object carries our id."""
    LOOKUP_FAILED = "lookup_failed"
    """The look-up itself gave no answer; nothing is learnt."""
    LEASE_EXPIRED = "lease_expired"
    """The worker that had committed an attempt went away; its request may have been sent."""
    ABANDONED = "abandoned"
    """Nobody will act any more: a person asked for the cancel, or the deadline of a required action has passed."""
    RULED_SUCCEEDED = "ruled_succeeded"
    """A person decided, with a reason, that the effect is there."""
    RULED_FAILED = "ruled_failed"
    """A person decided, with a reason, that the effect is not there and will not be."""


UNSENT = frozenset({Proof.NOT_SENT, Proof.LIMITED, Proof.UNAUTHORISED})
"""An attempt with one of these has executed nothing: it does not count as sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One proof with what goes with it.

    Attributes:
        proof: what is proved.
        from_lookup: it comes from a read, not from the answer to a send.
        replayed: the answer was a stored one (``Idempotent-Replayed: true``).
        external_id: id of the object that the proof speaks of.
        status: the object's own status word.
        object: the parts of the object worth keeping (id, status, amount, currency, failure code ...); no personal data.
        code: the other side's error code, such as ``card_declined``.
        detail: one plain sentence, free of secrets and personal data.
        http_status, request_id: for the attempt's row.
        retry_after_seconds: what the other side asked us to wait.
        surplus: ids of further unconfirmed intents of the same charge, which are to be cancelled.
    """

    proof: Proof
    from_lookup: bool = False
    replayed: bool = False
    external_id: str | None = None
    status: str | None = None
    object: Mapping[str, Any] | None = None
    code: str | None = None
    detail: str = ""
    http_status: int | None = None
    request_id: str | None = None
    retry_after_seconds: float | None = None
    surplus: tuple[str, ...] = ()


def evidence_json(evidence: Evidence) -> dict[str, Any]:
    """Return evidence as it is stored (``operation.conclusion``): plain JSON without what is empty."""
    return {name: value for name, value in asdict(evidence).items() if value not in (None, "", False, ())}


def evidence_from(stored: Mapping[str, Any]) -> Evidence:
    """Return evidence as it was stored by ``evidence_json``."""
    fields = dict(stored)
    return Evidence(**(fields | {"proof": Proof(fields["proof"]), "surplus": tuple(fields.get("surplus", ()))}))
