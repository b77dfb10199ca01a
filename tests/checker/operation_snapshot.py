"""What the ledgers say about operations, as plain values: our tables, the user's table, and Stripe's two books.

Rule: values only, so that a test can doctor one of them.  Stripe's books are the simulator's: what happened to money, and
which requests came, in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

SETTLED = frozenset({"succeeded", "failed", "canceled"})


@dataclass(frozen=True, slots=True)
class OperationRow:
    """A row of ``onceflow.operation``.

    ``wants``: the kind of movement that its frozen steps make, ``charge`` or ``refund``, None for any other.  ``busy``: why
    something is still to be done, None when nothing is.  ``review``: the code of its open review.
    """

    id: str
    subject: str
    state: str
    wants: str | None
    amount: int | None
    currency: str | None
    window_from: datetime
    fence: int
    told: tuple[str, ...]
    review: str | None = None
    busy: str | None = None


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """A row of ``onceflow.attempt``; ``key``: what it was sent with, None for the cancel of a surplus intent."""

    operation: str
    n: int
    key: str | None
    fence: int
    sent_at: datetime
    evidence: str | None


@dataclass(frozen=True, slots=True)
class Movement:
    """An entry of the simulator's ledger: money, or an intent made or canceled."""

    kind: str
    object: str
    operation: str | None
    amount: int
    currency: str


@dataclass(frozen=True, slots=True)
class Request:
    """A request that reached the simulator; ``names``: the metadata of it and of the object that it is about."""

    n: int
    method: str
    path: str
    key: str | None
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Told:
    """An outcome of an operation: a row of ``onceflow.outcome`` whose cause names one."""

    operation: str
    state: str
    type: str
    key: str


@dataclass(frozen=True, slots=True)
class Operations:
    """All of it at one quiet moment.

    ``settlements``: (operation, state) of the user's own table, one per row.  ``closed``: how many requests had come when an
    operation's safe window was over, by operation.  ``asleep``: operations of which a worker slept beyond the window between
    its last check and the send, which no client can keep from acting, or that somebody else repeated; such a refund may be
    doubled, when that is found.  ``restored``: operations whose attempts a restore of the database has taken away.
    """

    rows: tuple[OperationRow, ...]
    attempts: tuple[AttemptRow, ...]
    movements: tuple[Movement, ...]
    requests: tuple[Request, ...]
    told: tuple[Told, ...]
    settlements: tuple[tuple[str, str], ...]
    closed: Mapping[str, int] = field(default_factory=dict)
    asleep: frozenset[str] = frozenset()
    restored: frozenset[str] = frozenset()
