"""The shell around table ``object_read``: leases, answers, ends, in few statements over one connection.

Rule: a row is changed only under the fence of its lease, in a transaction that is open while nothing is on its way.  What is
decided about an answer is decided elsewhere.  Lock order: object_read, then the keys that wait for it, then account_budget.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from psycopg import Connection

from onceflow_processor.arrays import Integers, Texts
from onceflow_processor.operations.budget import Answer, blocks, opened
from onceflow_producer.failpoint import hit
from onceflow_schemas.object_reads import Failed, Later, Partly, ReadKind, ReadNeed, Verdict, Whole, assembled
from onceflow_schemas.sql import queries

LEASE_SECONDS_MAX = 600.0
"""No lease is granted for longer."""

_SQL = queries("object_reads")
_BUDGET = queries("operation_work")
_Due = tuple[str, str, str, str]
"""Account, kind, object and version of the API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStoreSettings:
    """What leasing needs to know.

    Attributes:
        owner: this process, once.
        mode, accounts: whose objects are read here.
        lease_seconds: how long a worker is waited for.
        requests_per_second, burst: budget of each account, shared by all workers and with operations.
        set_limits: time limits of a transaction.
    """

    owner: str
    mode: str
    accounts: tuple[str, ...]
    lease_seconds: float
    requests_per_second: float
    burst: int
    set_limits: Callable[[Connection[Any]], None] = field(repr=False)


@dataclass(frozen=True, slots=True)
class LeasedRead:
    """A read in hand, as its row stands; ``tries`` counts this one too, ``probe`` is the one call of a paused account."""

    need: ReadNeed
    path: str
    fence: int
    tries: int
    parts: int
    part_bytes: int
    code: str | None
    detail: str
    probe: bool = False


@dataclass(frozen=True, slots=True)
class Ruled:
    """A verdict about a read in hand, with what its answer said.

    Attributes:
        seconds: until the next try, of ``Later``.
        body: of the answer, where it is kept.
        stripe_at: Stripe's clock, no later than the moment at which the request began.
    """

    read: LeasedRead
    verdict: Verdict
    http_status: int | None = None
    seconds: float = 0.0
    body: bytes = b""
    stripe_at: datetime | None = None


class ReadStore:
    """Reads over one connection that is not in autocommit."""

    def __init__(self, connection: Connection[Any], *, settings: ReadStoreSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._refusals: dict[str, int] = {}

    def open(self) -> None:
        """Make sure that each account has a budget."""
        settings = self._settings
        given = {"accounts": sorted(settings.accounts), "mode": settings.mode, "burst": settings.burst}
        with self._connection.transaction():
            settings.set_limits(self._connection)
            self._connection.execute(_BUDGET["budgets_open"], given)

    def claim(self, count: int) -> list[LeasedRead]:
        """Lease due reads, as many as the accounts' budgets allow; each is one request."""
        settings = self._settings
        given = {
            "mode": settings.mode,
            "accounts": list(settings.accounts),
            "count": count,
            "ttl_seconds_max": LEASE_SECONDS_MAX,
        }
        with self._connection.transaction():
            settings.set_limits(self._connection)
            due = self._connection.execute(_SQL["due"], given).fetchall()
            chosen, probes = self._allowed(due)
            if not chosen:
                return []
            leased = {
                "owner": settings.owner,
                "ttl_seconds": settings.lease_seconds,
                "mode": settings.mode,
                "accounts": Texts(account for account, *_ in chosen),
                "kinds": Texts(kind for _, kind, *_ in chosen),
                "object_ids": Texts(object_id for *_, object_id, _ in chosen),
                "api_versions": Texts(api_version for *_, api_version in chosen),
            }
            rows = self._connection.execute(_SQL["lease"], leased).fetchall()
            hit("reader.before_lease_commit")
        return [_leased(row, probe=row[0] in probes) for row in rows]

    def settle(self, ruled: Ruled) -> bool:
        """Write down what became of a read; False when another worker has it."""
        read, need = ruled.read, ruled.read.need
        key = {
            "account": need.account,
            "mode": need.mode,
            "kind": need.kind.value,
            "object_id": need.object_id,
            "api_version": need.api_version or "",
        }
        with self._connection.transaction():
            self._settings.set_limits(self._connection)
            held = {**key, "fence": read.fence, "owner": self._settings.owner}
            if self._connection.execute(_SQL["hold"], held).fetchone() is None:
                return False
            self._write(ruled, key)
            hit("reader.before_commit")
        return True

    def note_answers(self, answers: Sequence[Answer]) -> None:
        """Block or open accounts as operations do."""
        blocked = blocks(answers, refusals=self._refusals)
        working = opened(answers, blocked=blocked)
        with self._connection.transaction():
            self._settings.set_limits(self._connection)
            if blocked:
                given = {
                    "mode": self._settings.mode,
                    "accounts": Texts(one.account for one in blocked),
                    "seconds": [one.seconds for one in blocked],
                    "reasons": Texts(one.reason for one in blocked),
                    "refusals": Integers(one.refusals for one in blocked),
                }
                self._connection.execute(_BUDGET["budget_block"], given)
            if working:
                self._connection.execute(_BUDGET["budget_open"], {"mode": self._settings.mode, "accounts": working})

    def waiting(self) -> tuple[int, float, int]:
        """Return how many reads wait, the age of the oldest in seconds, and how many the key may not do."""
        with self._connection.transaction():
            row = self._connection.execute(_SQL["waiting"], {"mode": self._settings.mode}).fetchone()
        assert row is not None, "a count has a row"
        return row[0], row[1], row[2]

    def _allowed(self, due: Iterable[_Due]) -> tuple[list[_Due], set[str]]:
        """Return what the budgets allow of what is due, and the accounts of which it is a probe."""
        rows = list(due)
        wanted = Counter(account for account, *_ in rows)
        if not wanted:
            return [], set()
        accounts = sorted(wanted)
        given = {
            "accounts": Texts(accounts),
            "calls": Integers(wanted[account] for account in accounts),
            "mode": self._settings.mode,
            "burst": self._settings.burst,
            "rate": self._settings.requests_per_second,
            "call_seconds_max": self._settings.lease_seconds,
        }
        left: Counter[str] = Counter()
        probes = set()
        for account, calls, paused, refusals in self._connection.execute(_BUDGET["budget_take"], given).fetchall():
            left[account] = calls
            self._refusals.pop(account, None)
            if paused:
                self._refusals[account] = refusals
                probes.add(account)
        chosen = []
        for row in rows:
            if left[row[0]] > 0:
                left[row[0]] -= 1
                chosen.append(row)
        return chosen, probes

    def _write(self, ruled: Ruled, key: dict[str, Any]) -> None:
        match ruled.verdict:
            case Partly(path):
                part = {**key, "n": ruled.read.parts + 1, "stripe_at": ruled.stripe_at, "body": ruled.body}
                self._connection.execute(_SQL["part_add"], part)
                self._connection.execute(_SQL["go_on"], {**key, "path": path, "bytes": len(ruled.body)})
            case Later(code, detail, _, counted):
                given = {"seconds": ruled.seconds, "uncounted": 0 if counted else 1, "http_status": ruled.http_status}
                self._connection.execute(_SQL["put_off"], {**key, **given, "code": code, "detail": detail})
            case Whole() | Failed():
                self._finish(ruled, key)

    def _finish(self, ruled: Ruled, key: dict[str, Any]) -> None:
        """End a read: what its requests brought becomes one body."""
        rows = self._connection.execute(_SQL["parts"], key).fetchall() if ruled.read.parts else []
        verdict, body = ruled.verdict, None
        bodies = [bytes(part) for _, part in rows] + ([ruled.body] if ruled.body else [])
        if isinstance(verdict, Whole) and verdict.code is None and bodies:
            body = assembled(ruled.read.need.kind, bodies)
        times = [at for at in (*(at for at, _ in rows), ruled.stripe_at) if at is not None]
        if rows:
            self._connection.execute(_SQL["parts_drop"], key)
        given = {
            "state": "read" if isinstance(verdict, Whole) else "failed",
            "stripe_at": min(times, default=None),
            "result": _result(verdict, body),
            "body": body,
            "http_status": ruled.http_status,
            "code": verdict.code if isinstance(verdict, (Whole, Failed)) else None,
            "detail": verdict.detail if isinstance(verdict, Failed) else "",
        }
        self._connection.execute(_SQL["finish"], {**key, **given})
        self._connection.execute(_SQL["wake"], key)


def _result(verdict: Verdict, body: bytes | None) -> str:
    if not isinstance(verdict, Whole):
        return "failed"
    if verdict.gone:
        return "gone"
    return "incomplete" if body is None else "whole"


def _leased(row: tuple[Any, ...], *, probe: bool) -> LeasedRead:
    account, mode, kind, object_id, first_path, path, api_version, fence, tries, parts, part_bytes, code, detail = row
    need = ReadNeed(account, mode, ReadKind(kind), object_id, first_path, api_version or None)
    return LeasedRead(need, path, fence, tries, parts, part_bytes, code, detail, probe)
