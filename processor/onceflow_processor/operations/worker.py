"""The worker: the one thread that touches the ledger.  It leases operations, hands their calls out, and settles what comes back.

Rule: no transaction is open while a call is on its way.  What is held in memory about an operation is worth nothing without
its fence in PostgreSQL: who has lost it drops it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
import structlog
from psycopg import Connection

from onceflow_processor.database import first_line
from onceflow_processor.deadline import Deadline
from onceflow_processor.known import Known
from onceflow_processor.operations.callback import CallbackSettings
from onceflow_processor.operations.callers import Callers, host_clock
from onceflow_processor.operations.hint_pass import take_hints
from onceflow_processor.operations.job import Finished, Job, Purpose
from onceflow_processor.operations.ledger import Leased, Ledger, LedgerSettings
from onceflow_processor.operations.metrics import OperatorMetrics
from onceflow_processor.operations.settlement import Round, Settling
from onceflow_processor.operations.settling import unmade
from onceflow_processor.operations.staged import StagedOutcomes
from onceflow_processor.operations.waiting import Waiting
from onceflow_processor.sqlstates import pooler_fault
from onceflow_processor.tail import NotCommitted
from onceflow_schemas.failure import Unavailable
from onceflow_schemas.operations.evidence import Evidence

SHORT_POLL_SECONDS = 0.05
RECENT_SECONDS = 2.0
"""So long after the last work the polls are short."""

BUSY_WAIT_SECONDS_MAX = 1.0
AHEAD_PER_SETTLED = 2
"""Operations leased beyond what can be on its way, for each one that a round has settled: a caller that ends one call finds
the next, however long a round takes; and where calls are slow, little is kept from other workers."""
AHEAD_SHARE_MIN, AHEAD_SHARE_MAX = 0.5, 3.0
"""At least and at most so many, as a share of what can be on its way."""
AHEAD_KEPT = 0.75
"""So much of it is kept after a smaller round: small and large ones alternate."""

DUTY_SECONDS = 1.0
WATCH_SECONDS = 5.0
HEARTBEATS_PER_LEASE = 3
LANE_CHECK_WAIT_SECONDS = 2.0
STAGED_PAGES_MAX = 20
DRAIN_MARGIN_SECONDS = 5.0
RECONNECT_SECONDS_MAX = 5.0
_RECONNECT_SECONDS = 0.1

log = structlog.get_logger("onceflow.operations")


@dataclass(frozen=True, slots=True)
class Connections:
    """What the worker's thread has open: one in transactions, one in autocommit for looks and for being woken."""

    ledger: Connection[Any]
    side: Connection[Any]

    def close(self) -> None:
        """Close both; harmless when they are."""
        self.ledger.close()
        self.side.close()


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What the worker needs besides its connections."""

    ledger: LedgerSettings
    callbacks: CallbackSettings
    concurrency: int
    poll_seconds: float


@dataclass(slots=True)
class _Desk:
    """Everything that lives and dies with the connections."""

    connections: Connections
    ledger: Ledger
    settling: Settling
    staged: StagedOutcomes


class Worker:
    """Runs until ``stopping``.

    ``open_connections`` connects and checks everything that a new connection must meet; ``check_lanes`` compares the
    lanes with the outcome topic again.
    """

    def __init__(
        self,
        callers: Callers,
        waiting: Waiting,
        *,
        settings: WorkerSettings,
        open_connections: Callable[[], Connections],
        check_lanes: Callable[[Connection[Any]], object],
        deadline: Deadline,
        metrics: OperatorMetrics,
        stopping: Callable[[], bool],
        wait: Callable[[float], object],
    ) -> None:
        self._callers = callers
        self._waiting = waiting
        self._settings = settings
        self._open = open_connections
        self._check_lanes = check_lanes
        self._deadline = deadline
        self._metrics = metrics
        self._stopping = stopping
        self._wait_seconds = wait
        self._desk: _Desk | None = None
        self._held: dict[UUID, Job] = {}
        self._finished: list[Finished] = []
        self._to_send: list[Job] = []
        self._suspects: dict[UUID, int] = {}
        self._ahead = ahead(settings.concurrency, before=0, settled=0)
        self._claim_max = self._capacity
        self._heartbeat_at = float("-inf")
        self._duty_at = self._watch_at = 0.0
        self._lane_check_at = float("inf")
        self._recent_until = 0.0
        self._failures = 0

    @property
    def _capacity(self) -> int:
        return self._settings.concurrency + self._ahead

    def run(self, connections: Connections) -> None:
        """Work until the process is stopping, then settle what is on its way.

        Args:
            connections: checked ones to begin with.
        """
        try:
            self._sit_down(connections)
            while not self._stopping():
                try:
                    self._turn(self._connected())
                    self._failures = 0
                except (Unavailable, psycopg.Error, NotCommitted) as error:
                    self._drop_connections(error)
            self._drain()
        finally:
            if self._desk is not None:
                self._waiting.forget()
                self._desk.connections.close()

    def _turn(self, desk: _Desk) -> None:
        self._collect()
        self._settle(desk)
        self._keep_leases(desk)
        self._do_duties(desk)
        leased = self._claim(desk)
        self._send(desk)
        self._pause(desk, leased)

    def _collect(self) -> None:
        """Take what the callers have finished; what they have not begun is checked again."""
        for one in self._callers.take():
            if one.evidence is not None:
                self._finished.append(one)
            elif self._stopping():
                self._finished.append(Finished(one.job, _not_made(one.job, "the worker is stopping")))
            else:
                self._to_send.append(one.job)

    def _settle(self, desk: _Desk) -> None:
        if not self._finished:
            return
        done = desk.settling.settle(self._finished, refusals=desk.ledger.refusals)
        left = {one.job.operation.id for one in done.left}
        for one in self._finished:
            if one.job.operation.id not in left:
                self._held.pop(one.job.operation.id, None)
        self._finished = list(done.left)
        self._ahead = ahead(self._settings.concurrency, before=self._ahead, settled=len(done.settlements))
        self._metrics.count(done.settlements)
        self._metrics.outcomes.inc(done.outcomes)
        self._recent_until = time.monotonic() + RECENT_SECONDS
        self._tell(done)

    def _tell(self, done: Round) -> None:
        for one in done.fenced:
            self._metrics.fenced.inc()
            proof = None if one.evidence is None else one.evidence.proof.value
            log.warning("late_answer_refused", operation=str(one.job.operation.id), evidence=proof)
        for one, reason in done.kept:
            operation = one.job.operation
            self._metrics.callback_failures.labels(operation.effect).inc()
            # What it says may quote data; the whole reason is in the operation's last_error.
            log.error(
                "settled_callback_failed",
                operation=str(operation.id),
                effect=operation.effect,
                error=reason.partition(":")[0],
            )
        if done.lanes_closed:
            self._metrics.trouble.labels("lane_closed").inc()
            self._lane_check_at = min(self._lane_check_at, time.monotonic() + LANE_CHECK_WAIT_SECONDS)

    def _keep_leases(self, desk: _Desk) -> None:
        # A clock that also counts while the machine sleeps: after a sleep the leases come first.
        now = host_clock()
        if now < self._heartbeat_at:
            return
        self._heartbeat_at = now + self._settings.ledger.lease_seconds / HEARTBEATS_PER_LEASE
        jobs = [job for job in self._held.values() if not job.lost]
        if jobs:
            kept = desk.ledger.heartbeat(jobs)
            for job in jobs:
                if job.operation.id not in kept:
                    self._lose(job)
        desk.ledger.end_leases_of_jumped_clocks()

    def _lose(self, job: Job) -> None:
        """Somebody else has it: a call that has not begun is not made, the answer of one that has is refused later."""
        job.lost = True
        self._metrics.fenced.inc()
        log.warning("lease_lost", operation=str(job.operation.id))

    def _do_duties(self, desk: _Desk) -> None:
        now = time.monotonic()
        if now >= self._lane_check_at:
            self._lane_check_at = float("inf")
            # The look at the topic may take nearly as long as a lease lasts: leases come first.
            self._heartbeat_at = float("-inf")
            self._keep_leases(desk)
            self._check_lanes(desk.connections.ledger)
        if now >= self._duty_at:
            self._duty_at = now + DUTY_SECONDS
            take_hints(desk.connections.ledger, set_limits=self._settings.ledger.set_limits)
            for _ in range(STAGED_PAGES_MAX):
                moved = desk.staged.move(desk.connections.ledger)
                self._metrics.staged_moved.inc(moved)
                if not moved:
                    break
        if now >= self._watch_at:
            self._watch_at = now + WATCH_SECONDS
            desk.ledger.forget_plans()
            self._metrics.show_states(desk.ledger.states())
            accounts = self._settings.ledger.accounts
            self._metrics.show_paused(accounts, paused=[account for account, _ in desk.ledger.paused_accounts()])

    def _claim(self, desk: _Desk) -> Leased:
        """Lease what there is room for, and not many more than the accounts' budgets allowed the last time."""
        slots = min(self._capacity - len(self._held), self._claim_max)
        if slots <= 0:
            return Leased()
        leased = desk.ledger.claim(slots, held=self._held)
        self._claim_max = 2 * len(leased.jobs) + 1 if leased.waiting else self._capacity
        self._metrics.tell_undecided(leased.undecided)
        for job in (*leased.jobs, *(one.job for one in leased.concluded)):
            self._held[job.operation.id] = job
        self._to_send.extend(leased.jobs)
        self._finished.extend(leased.concluded)
        self._metrics.leased.set(len(self._held))
        return leased

    def _send(self, desk: _Desk) -> None:
        """Hand over the calls that the database says may be made now."""
        for job in self._to_send:
            if job.lost:
                self._held.pop(job.operation.id, None)
        jobs = [job for job in self._to_send if not job.lost]
        if not jobs:
            self._to_send = []
            return
        waited = [job for job in jobs if job.attempt and job.checked_at > float("-inf")]
        if waited:
            desk.ledger.again(waited)
        asked_at = host_clock()
        found = desk.ledger.recheck(jobs)
        self._to_send = []
        ready = []
        for job in jobs:
            if (verdict := found.get(job.operation.id)) is None:
                self._lose(job)
                self._held.pop(job.operation.id, None)
            elif all(verdict):
                job.checked_at = asked_at
                ready.append(job)
            else:
                long_enough, _ = verdict
                why = "the safe window is over" if long_enough else "the lease ends before the call could"
                self._finished.append(Finished(job, _not_made(job, why)))
        if ready:
            self._callers.submit(ready)

    def _pause(self, desk: _Desk, leased: Leased) -> None:
        """Wait for the next thing to do: a finished call, a wake-up, or the time when something becomes due."""
        now = time.monotonic()
        if leased.rows:
            self._recent_until = now + RECENT_SECONDS
        if self._finished:
            return
        if len(self._held) >= self._capacity:
            seconds = BUSY_WAIT_SECONDS_MAX
        elif leased.rows or leased.behind or now < self._recent_until:
            seconds = SHORT_POLL_SECONDS
        else:
            due = desk.ledger.next_due_seconds()
            seconds = self._settings.poll_seconds if due is None else max(0.0, min(due, self._settings.poll_seconds))
        if self._waiting.wait(seconds):
            # Who told us may have noted hints as well.
            self._duty_at = min(self._duty_at, time.monotonic() + SHORT_POLL_SECONDS)

    def _sit_down(self, connections: Connections) -> None:
        settings = self._settings
        known = Known()
        ledger = Ledger(connections.ledger, connections.side, settings=settings.ledger)
        settling = Settling(
            connections.ledger,
            owner=settings.ledger.owner,
            mode=settings.ledger.mode,
            limits=settings.ledger.limits,
            callbacks=settings.callbacks,
            known=known,
            deadline=self._deadline,
            suspects=self._suspects,
        )
        staged = StagedOutcomes(set_limits=settings.ledger.set_limits)
        self._desk = _Desk(connections, ledger, settling, staged)
        self._waiting.listen(connections.side)
        ledger.open()
        self._heartbeat_at = float("-inf")
        self._metrics.database_up.set(1)

    def _connected(self) -> _Desk:
        if self._desk is None:
            self._sit_down(self._open())
            log.info("database_connected")
        assert self._desk is not None
        return self._desk

    def _drop_connections(self, error: Exception) -> None:
        """Wait with full jitter and try again; calls that are on their way go on, and what they prove is settled later.

        Raises:
            Misconfigured: ``settings_invalid``: a pooler that prepared statements cannot pass.
        """
        fault = pooler_fault(error)
        if fault is not None:
            raise fault from error
        self._metrics.database_up.set(0)
        self._metrics.trouble.labels("database_away").inc()
        log.warning("database_away", reason=first_line(error), failures=self._failures)
        if self._desk is not None:
            self._waiting.forget()
            self._desk.connections.close()
            self._desk = None
        limit = min(RECONNECT_SECONDS_MAX, _RECONNECT_SECONDS * 2 ** min(self._failures, 10))
        self._failures += 1
        self._wait_seconds(random.uniform(limit / 2, limit))  # noqa: S311 - jitter needs no secrecy.

    def _drain(self) -> None:
        """Begin no call any more; settle those on their way, as long as the longest one may take.

        What cannot be settled ends with its lease, and the next worker finds out what became of it.
        """
        self._callers.refuse_new()
        give_up_at = time.monotonic() + self._settings.ledger.call_seconds_max + DRAIN_MARGIN_SECONDS
        self._finished.extend(Finished(job, _not_made(job, "the worker is stopping")) for job in self._to_send)
        self._to_send = []
        while time.monotonic() < give_up_at:
            try:
                desk = self._connected()
                self._collect()
                self._settle(desk)
                self._keep_leases(desk)
                if not self._held:
                    return
                self._waiting.wait(SHORT_POLL_SECONDS)
            except (Unavailable, psycopg.Error, NotCommitted) as error:
                self._drop_connections(error)
        log.warning("operations_left", operations=len(self._held))


def ahead(concurrency: int, *, before: int, settled: int) -> int:
    """Return how many operations a worker may hold beyond ``concurrency``, after a round that has settled so many."""
    least, most = int(concurrency * AHEAD_SHARE_MIN), int(concurrency * AHEAD_SHARE_MAX)
    return min(max(AHEAD_PER_SETTLED * settled, int(before * AHEAD_KEPT), least), most)


def _not_made(job: Job, why: str) -> Evidence:
    """Return the evidence of a call that was not begun."""
    return unmade(why, looks=job.purpose is Purpose.LOOK_UP)
