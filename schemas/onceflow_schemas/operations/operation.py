"""The operation as a value: what was asked for, what was frozen, and how far it is.

Rule: everything that decides about an operation takes this value and ``now``; only the shells read clocks and rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from onceflow_schemas.operations.evidence import Proof

METADATA_KEY = "onceflow_operation"
"""Every Stripe object that an operation makes carries the operation's id under this key of its metadata."""
DEPLOYMENT_KEY = "onceflow_deployment"
"""And whose operation it is: several deployments may share an account."""


class State(StrEnum):
    """Operation states (contract: table ``operation``, column ``state``)."""

    REQUESTED = "requested"
    """Nothing of the present step may have reached the other side."""
    SENDING = "sending"
    """An attempt is committed and may be on its way; belongs to a lease."""
    PENDING = "pending"
    """The other side has it and has not decided (bank debits, a person's action, a cancel that must still succeed)."""
    UNKNOWN = "unknown"
    """It may have happened.  Leaves only by evidence."""
    REVIEW = "review"
    """Only a person may decide."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


SETTLED = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELED})
"""States in which the settled callback has run.  ``succeeded`` may still become ``failed`` (a refund that a bank returns)."""


class Policy(StrEnum):
    """What may be done when it is unknown whether a call arrived."""

    STRIPE = "stripe"
    """Same key within the safe window, then look-ups."""
    FENCED = "fenced"
    """The step cannot act twice at all (the confirm or cancel of one stored intent): after the window look first, then send."""
    HARMLESS = "harmless"
    """A second execution costs nothing (an unconfirmed intent): may be repeated at any time, the surplus is cancelled."""
    IDEMPOTENT = "idempotent"
    """The other side takes our Idempotency-Key, like Stripe, within the same safe window."""
    AT_LEAST_ONCE = "at_least_once"
    """Sent again until it is confirmed; a repeat is tolerated (mail with one Message-ID)."""
    AT_MOST_ONCE = "at_most_once"
    """Never sent again once it may have arrived; unknown goes to review."""
    RECONCILE_FIRST = "reconcile_first"
    """Every send, the first too, is preceded by a look-up."""


class Role(StrEnum):
    """What a step is for (its ``name``): the only call of an operation, or one of the three of a charge."""

    CALL = "call"
    CREATE = "create"
    CONFIRM = "confirm"
    CANCEL = "cancel"
    """Closes an intent that was declined or abandoned."""


@dataclass(frozen=True, slots=True)
class Step:
    """One frozen call.  Stored as JSON (``steps``); nothing at sending time can change it.

    Attributes:
        name: ``call``, or ``create``, ``confirm``, ``cancel`` of a charge; stands in the key and in ``attempt.step``.
        kind: ``stripe``, ``http`` or ``mail``: which sender takes it.
        key: the idempotency key, ``<operation id>`` or ``<operation id>.<name>``; the Message-ID of a mail is made of it.
        policy: what may be done when it is unknown.
        request: what the sender needs, by kind:
            stripe: {"method", "path", "params"}; ``{external_id}`` in the path stands for the stored object id;
            http: {"method", "url", "headers", "body", "credential"} (body is text; credential names a secret of the settings);
            mail: {"sender", "to", "subject", "text", "html"}.
        lookup: how to find out what became of it, by kind; None when nothing can:
            stripe: {"list": path, "params": {...}} (complete, matched by metadata on our side; the sender bounds ``created``),
            and/or {"retrieve": path}, where ``statuses`` may say what a status proves; http: {"method", "url", "headers"}.
        expect: what the object must say, compared in any case: ``object`` (its kind), ``operation`` (our id in its metadata),
            and fields such as ``amount`` and ``currency``.
    """

    name: str
    kind: str
    key: str
    policy: Policy
    request: Mapping[str, Any]
    lookup: Mapping[str, Any] | None = None
    expect: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation as read from its row, with what its attempts tell about the present step.

    Attributes:
        steps, step: the frozen calls and which one is the present one (index).
        account, mode: where it acts, ``acct_...`` and ``live`` or ``test``.
        requested_at: when the row was written, database clock.
        window_from: start of the safe window: min(requested_at, Stripe's created of the causing event).
        external_id: the object at the other side, once an answer or look-up has proved it is ours.
        fence: the token of the present lease.
        tries: attempts of the present step in a row without a conclusion, for the backoff.
        sent: whether an attempt of the present step may have left us ever (any attempt row whose evidence is not in ``UNSENT``).
            In state SENDING the attempt in hand is not counted: what it proves is told by its own evidence.
        last_sent_at: the last such attempt's time; None when ``sent`` is False.
        last_proof: what the last of these attempts proved; None without one, or when it proved nothing yet.
        restored: a restore of the database was noticed since ``requested_at``: "no attempt row" proves nothing then.
        looked_up_at: when the last look-up of the present step found nothing, from a complete list; None otherwise.
        action_until: when a required action of a person ends; None when none is required.
        conclusion: evidence that is proved but not settled yet because its callback failed; None otherwise.
        cancel_asked: a person asked for its cancel.
        look_asked: a webhook or a person gave a reason to look at the object, whatever the state is.
        review_code: the code of the open review; None without one.
        told: the settled states whose callback has run; it runs once for each.
    """

    id: UUID
    account: str
    mode: str
    effect: str
    subject: str
    occurrence: int
    order_key: str | None
    args: Mapping[str, Any]
    state: State
    steps: tuple[Step, ...]
    step: int
    api_version: str
    requested_at: datetime
    window_from: datetime
    external_id: str | None = None
    fence: int = 0
    tries: int = 0
    sent: bool = False
    last_sent_at: datetime | None = None
    last_proof: Proof | None = None
    restored: bool = False
    looked_up_at: datetime | None = None
    action_until: datetime | None = None
    conclusion: Mapping[str, Any] | None = None
    cancel_asked: bool = False
    look_asked: bool = False
    review_code: str | None = None
    told: tuple[str, ...] = ()
    last_error: str | None = None
    result: Mapping[str, Any] | None = None

    @property
    def present(self) -> Step:
        """The step in hand."""
        return self.steps[self.step]

    @property
    def role(self) -> Role:
        """What the step in hand is for."""
        return Role(self.present.name)

    @property
    def never_sent(self) -> bool:
        """Whether it is certain that no attempt of the present step has left us."""
        return not self.sent and not self.restored
