"""The ledger's shell: leases, attempts and rows, in few statements over one connection.

Rule: an attempt is committed before its call begins, and every write names the fence of its lease.  Nothing is decided here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from psycopg import Connection
from psycopg.rows import dict_row

from onceflow_processor.arrays import Bigints, Integers, Texts, Uuids
from onceflow_processor.operations.job import Finished, Job
from onceflow_processor.operations.ledger_columns import made_columns, review_columns, write_columns
from onceflow_processor.operations.plan import Planned, costs, within
from onceflow_processor.operations.undecided import Undecided, plan_each
from onceflow_processor.tail import check_committed
from onceflow_producer.failpoint import hit
from onceflow_schemas.operations.evidence import UNSENT
from onceflow_schemas.operations.limits import Limits
from onceflow_schemas.sql import queries

LEASE_SECONDS_MAX = 600.0
"""No lease is granted for longer; one that ends later was written by a clock that has jumped."""

LOOKED_AT_BEYOND = 200
"""Due operations that are looked at beyond what is claimed, since some may be behind others of their order_key."""

BEHIND_SECONDS = 60.0
"""An operation behind another is looked at again after so long, should nobody have told it that its turn has come."""

_UNSENT = sorted(proof.value for proof in UNSENT)
_SQL = queries("operation_work")
_COMMIT = queries("batch")["commit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSettings:
    """What leasing needs to know.

    Attributes:
        owner: this process, once.
        mode, accounts: whose operations are carried out here.
        effects: names of the effects that this worker knows.
        kinds: kinds of calls that it has a sender for.
        lease_seconds: how long a worker is waited for.
        call_seconds_max: the longest call, with the age that its check may have.
        requests_per_second, burst: budget of each account, shared by all workers.
        limits: of the decisions.
        set_limits: time limits of a transaction.
    """

    owner: str
    mode: str
    accounts: tuple[str, ...]
    effects: tuple[str, ...]
    kinds: tuple[str, ...]
    lease_seconds: float
    call_seconds_max: float
    requests_per_second: float
    burst: int
    limits: Limits
    set_limits: Callable[[Connection[Any]], None] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Leased:
    """What a claim has brought: calls to make, and what is settled without one.

    ``rows`` counts what was due, ``waiting`` what its account's budget did not allow now, ``behind`` what was put off
    because another of its order_key comes first, ``undecided`` what no rule could be applied to.
    """

    jobs: Sequence[Job] = ()
    concluded: Sequence[Finished] = ()
    rows: int = 0
    waiting: int = 0
    behind: int = 0
    undecided: Sequence[Undecided] = ()


class Ledger:
    """Leases over one connection that is not in autocommit, and looks over one that is."""

    def __init__(self, connection: Connection[Any], side: Connection[Any], *, settings: LedgerSettings) -> None:
        self._connection = connection
        self._side = side
        self._settings = settings
        self._mine: dict[str, Any] = {
            "mode": settings.mode,
            "accounts": list(settings.accounts),
            "effects": list(settings.effects),
            "kinds": list(settings.kinds),
        }
        self.refusals: dict[str, int] = {}
        """Accounts whose key was refused, as far as this worker knows: how often in a row."""

    def open(self) -> None:
        """Make sure that each account has a budget."""
        given = {
            "accounts": sorted(self._settings.accounts),
            "mode": self._settings.mode,
            "burst": self._settings.burst,
        }
        self._change("budgets_open", given)

    def claim(self, count: int, *, held: Collection[UUID]) -> Leased:
        """Lease due operations, decide what to do, and commit what must be known before the first call.

        Args:
            count: how many at most.
            held: operations that this worker has in hand.

        Raises:
            psycopg.Error: the database did not answer; what was leased nevertheless ends with its lease.
        """
        hit("operator.before_claim")
        given = {
            **self._mine,
            "owner": self._settings.owner,
            "ttl_seconds": self._settings.lease_seconds,
            "count": count,
            "held": Uuids(held),
            "looked_at_max": count + LOOKED_AT_BEYOND,
            "behind_seconds": BEHIND_SECONDS,
            "unsent": _UNSENT,
        }
        cursor = self._connection.cursor(row_factory=dict_row)
        with self._connection.pipeline():
            self._settings.set_limits(self._connection)
            cursor.execute(_SQL["claim"], given)
        found = cursor.fetchall()
        behind, rows = found[0]["behind"], [row for row in found if row["id"] is not None]
        if not rows:
            self._connection.commit()
            return Leased(behind=behind)
        planned, undecided = self._plan(rows)
        allowed, waiting = within(planned, self._take_budget(planned))
        self._write(allowed, waiting)
        hit("operator.after_claim")
        jobs = [one.job for one in allowed if one.job is not None and one.evidence is None]
        for job in jobs:
            job.probe = costs(job) and job.operation.account in self.refusals
        concluded = [
            Finished(one.job, one.evidence) for one in allowed if one.job is not None and one.evidence is not None
        ]
        return Leased(jobs, concluded, len(rows), len(waiting), behind, undecided)

    def recheck(self, jobs: Sequence[Job]) -> dict[UUID, tuple[bool, bool]]:
        """Ask once more, right before the calls: by operation id, whether the lease is long enough and the time right.

        Who is missing has lost its lease.
        """
        hit("operator.before_recheck")
        given = {
            "ids": Uuids(job.operation.id for job in jobs),
            "fences": Bigints(job.operation.fence for job in jobs),
            "send_befores": [job.send_before for job in jobs],
            "owner": self._settings.owner,
            "call_seconds_max": self._settings.call_seconds_max,
        }
        rows = self._side.execute(_SQL["recheck"], given).fetchall()
        return {found: (long_enough, in_time) for found, long_enough, in_time in rows}

    def heartbeat(self, jobs: Sequence[Job]) -> set[UUID]:
        """Keep the leases of these jobs; return the ids of those that are still ours."""
        given = {
            "ids": Uuids(job.operation.id for job in jobs),
            "fences": Bigints(job.operation.fence for job in jobs),
            "owner": self._settings.owner,
            "ttl_seconds": self._settings.lease_seconds,
        }
        return {found for (found,) in self._change("heartbeat", given)}

    def again(self, jobs: Sequence[Job]) -> None:
        """The attempts of these sends, which waited in this process, begin only now."""
        given = {
            "operation_ids": Uuids(job.operation.id for job in jobs),
            "ns": Integers(job.attempt for job in jobs),
        }
        self._change("attempts_again", given)

    def end_leases_of_jumped_clocks(self) -> None:
        """Make due what nobody may have leased for so long."""
        self._change("leases_end", {"ttl_seconds_max": LEASE_SECONDS_MAX})

    def forget_plans(self) -> None:
        """Have the statements planned anew for what the tables hold by now."""
        self._side.execute(_SQL["forget_plans"])
        self._change("forget_plans", {})

    def next_due_seconds(self) -> float | None:
        """Return in how many seconds something becomes due; None when nothing will."""
        row = self._side.execute(_SQL["next_due"], self._mine).fetchone()
        return None if row is None else row[0]

    def states(self) -> list[tuple[str, int, float]]:
        """Return (state, count, age of the oldest in seconds) of what is not settled."""
        return self._side.execute(_SQL["states"]).fetchall()

    def paused_accounts(self) -> list[tuple[str, str]]:
        """Return (account, reason) of the accounts whose key is refused."""
        return self._side.execute(_SQL["blocked_accounts"], self._mine).fetchall()

    def _change(self, name: str, given: dict[str, Any]) -> list[Any]:
        """Run one statement in a transaction of its own, with our limits."""
        with self._connection.transaction():
            self._settings.set_limits(self._connection)
            cursor = self._connection.execute(_SQL[name], given)
            return cursor.fetchall() if cursor.description else []

    def _plan(self, rows: Sequence[Mapping[str, Any]]) -> tuple[list[Planned], list[Undecided]]:
        """Decide about each row by itself: one that cannot be decided on stops none of the others."""
        planned: list[Planned] = []
        undecided: list[Undecided] = []
        for row in rows:
            found, wrong = plan_each(row, limits=self._settings.limits)
            if found is not None:
                planned.append(found)
            if wrong is not None:
                undecided.append(wrong)
        return planned, undecided

    def _take_budget(self, planned: Sequence[Planned]) -> dict[str, int]:
        wanted = Counter(one.job.operation.account for one in planned if one.job is not None and costs(one.job))
        if not wanted:
            return {}
        accounts = sorted(wanted)
        given = {
            "accounts": Texts(accounts),
            "calls": Integers(wanted[account] for account in accounts),
            "mode": self._settings.mode,
            "burst": self._settings.burst,
            "rate": self._settings.requests_per_second,
            "call_seconds_max": self._settings.call_seconds_max,
        }
        granted = {}
        for account, calls, paused, refusals in self._connection.execute(_SQL["budget_take"], given).fetchall():
            granted[account] = calls
            self.refusals.pop(account, None)
            if paused:
                self.refusals[account] = refusals
        return granted

    def _write(self, allowed: Sequence[Planned], waiting: Sequence[Planned]) -> None:
        rows = [one.released if one.row is None else one.row for one in allowed]
        rows += [one.released for one in waiting]
        sends = [one.job for one in allowed if one.job is not None and one.job.attempt]
        reviews = [(one.released.operation.id, one.review, None) for one in allowed if one.review is not None]
        with self._connection.pipeline():
            if sends:
                self._connection.execute(_SQL["attempts_add"], made_columns(sends, owner=self._settings.owner))
            if reviews:
                self._connection.execute(_SQL["reviews_open"], review_columns(reviews))
            self._connection.execute(_SQL["operations_write"], write_columns(rows))
            commit = self._connection.execute(_COMMIT)
        check_committed(commit)
