"""What the ledgers hold, as plain values: the sender's list, both topics, the tables, the logs.

Rule: values only.  Bodies and outcome values are kept as SHA-256, so that a snapshot of 100,000 events fits into
memory, and a test can plant a fault by replacing one value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

Identity = tuple[str, str, str]
"""(account, mode, event id)."""

Position = tuple[int, int]
"""(partition, offset) in the event topic."""

ANSWERED = 200
REFUSED_FROM, REFUSED_TO = 400, 499


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request as its sender saw it; ``status`` is None when the connection broke before an answer came.

    ``signed``: the signature was right.  ``codes``: when not empty, the body must end in quarantine with one of these.
    """

    body_sha256: bytes
    status: int | None
    signed: bool = True
    codes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Wanted:
    """The one outcome that an event should have; ``once``: one for all events of this object."""

    type: str
    key: str
    once: bool = False
    data: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class EventEntry:
    """A record of the event topic.

    ``identity`` and ``type`` stand in the headers (None when they are not readable), ``body_identity`` is read from
    the value by the checker (the account None when the body names none).  ``told_sha256``: of one that was written from
    Stripe's list, the digest of what it says, which its marker has instead of that of its bytes.
    """

    partition: int
    offset: int
    key: bytes | None
    body_sha256: bytes | None
    identity: Identity | None
    type: str | None
    body_identity: tuple[str | None, str | None, str | None]
    handled: bool = False
    wanted: Wanted | None = None
    told_sha256: bytes | None = None

    @property
    def position(self) -> Position:
        """Where it stands."""
        return self.partition, self.offset


@dataclass(frozen=True, slots=True)
class Marker:
    """A row of ``onceflow.inbox``."""

    identity: Identity
    state: str
    type: str
    position: Position
    body_sha256: bytes


@dataclass(frozen=True, slots=True)
class QuarantineRow:
    """A row of ``onceflow.quarantine``."""

    position: Position
    code: str
    identity: Identity | None
    value_sha256: bytes | None
    header_count: int


@dataclass(frozen=True, slots=True)
class Progress:
    """A row of ``onceflow.progress`` with the log's own bounds beside it."""

    partition: int
    next_offset: int
    epoch: int
    stopped: str | None
    log_start: int
    log_end: int


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of ``onceflow.lane``."""

    lane: int
    head_seq: int
    published_seq: int
    state: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """An outcome: a row of ``onceflow.outcome``, or a record of the outcome topic (then ``offset`` is set).

    ``refill``: the record says that it fills a hole, so it may stand behind later ones.
    """

    lane: int
    seq: int
    outcome_id: str
    revision: int
    ce_id: str
    type: str
    key: str
    value_sha256: bytes
    cause: str
    created_at: datetime | None
    numbers: tuple[tuple[str, int], ...] = ()
    offset: int | None = None
    refill: bool = False


@dataclass(frozen=True, slots=True)
class Foreign:
    """A record of the outcome topic that carries no readable headers of ours."""

    partition: int
    offset: int
    why: str


@dataclass(frozen=True, slots=True)
class Fact:
    """A row of ``onceflow.fact``."""

    namespace: str
    key: str
    cause: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A canary found where it must not be."""

    where: str
    canary: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All ledgers at one quiet moment.

    ``effects``: event ids of the user's own table, one per row; None when the handlers in use write no such table.
    ``guard_rows``: rows left in ``onceflow.batch_guard``.  ``not_quiet``: why the system had not settled in its
    limit, None when it had.  ``planted``: codes by position for records that a test put on the topic by itself.
    ``waiting``: parked events that may wait, for a person or for a time that has not come.
    """

    deliveries: tuple[Delivery, ...]
    events: tuple[EventEntry, ...]
    markers: tuple[Marker, ...]
    quarantine: tuple[QuarantineRow, ...]
    progress: tuple[Progress, ...]
    lanes: tuple[Lane, ...]
    rows: tuple[Outcome, ...]
    published: tuple[Outcome, ...]
    foreign: tuple[Foreign, ...] = ()
    facts: tuple[Fact, ...] = ()
    effects: tuple[str, ...] | None = None
    guard_rows: int = 0
    hits: tuple[Hit, ...] = ()
    not_quiet: str | None = None
    planted: dict[Position, frozenset[str]] = field(default_factory=dict)
    waiting: frozenset[Identity] = frozenset()
