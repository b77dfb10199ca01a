"""The metrics of the workers of operations.

Rule: a label's values come from fixed lists, from the effects and from the accounts of the settings, never from data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from onceflow_processor.operations.settling import Settlement
from onceflow_processor.operations.undecided import UNDECIDED, Undecided
from onceflow_schemas.operations.operation import SETTLED, State

log = structlog.get_logger("onceflow.operations")

_CALL_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0)
_OPEN_STATES = tuple(state for state in State if state not in SETTLED)


class OperatorMetrics:
    """What an operator sees of the workers."""

    def __init__(self, registry: CollectorRegistry) -> None:
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self.settled = Counter(
            "onceflow_operations_settled", "Operations that were settled here, by effect and state.", ["effect", "state"],
            registry=registry,
        )  # fmt: skip
        self.attempts = Counter(
            "onceflow_operations_attempts",
            "Calls that came back, by what they proved.",
            ["evidence"],
            registry=registry,
        )
        self.call_seconds = Histogram(
            "onceflow_operations_call_seconds", "Time of a call.", buckets=_CALL_SECONDS, registry=registry
        )
        self.open = Gauge(
            "onceflow_operations_open", "Operations that are not settled, by state, of the whole database.",
            ["state"], registry=registry,
        )  # fmt: skip
        self.oldest_seconds = Gauge(
            "onceflow_operations_oldest_seconds", "Age of the oldest operation of a state, of the whole database.",
            ["state"], registry=registry,
        )  # fmt: skip
        self.leased = Gauge("onceflow_operations_leased", "Operations leased by this worker.", registry=registry)
        self.fenced = Counter(
            "onceflow_operations_fenced", "Late answers and renewals that were refused: another worker has the operation.",
            registry=registry,
        )  # fmt: skip
        self.callback_failures = Counter(
            "onceflow_operations_callback_failures", "Settled callbacks that failed; the proof is kept.", ["effect"],
            registry=registry,
        )  # fmt: skip
        self.paused = Gauge(
            "onceflow_operations_account_paused", "1 while nothing is sent because the account's key is refused.",
            ["account"], registry=registry,
        )  # fmt: skip
        self.outcomes = Counter("onceflow_operations_outcomes", "Outcomes written by callbacks.", registry=registry)
        self.staged_moved = Counter(
            "onceflow_operations_staged_moved", "Outcomes of applications moved into lanes.", registry=registry
        )
        self.trouble = Counter(
            "onceflow_operations_trouble",
            "Things that went wrong and heal alone, by kind.",
            ["kind"],
            registry=registry,
        )
        self.undecided = Counter(
            "onceflow_operations_undecided", "Operations that no rule could be applied to, by code.", ["code"],
            registry=registry,
        )  # fmt: skip
        self.database_up = Gauge("onceflow_operations_database_up", "1 while the database answers.", registry=registry)

    def tell_undecided(self, found: Iterable[Undecided]) -> None:
        """Count and log what no rule could be applied to; the whole reason is in the review, and `operations show` has it."""
        for one in found:
            self.undecided.labels(one.code).inc()
            log.error(one.code, operation=str(one.id), error=one.error)

    def count(self, settlements: Iterable[Settlement]) -> None:
        """Count what a committed transaction has settled."""
        for one in settlements:
            if one.seconds is not None:
                self.call_seconds.observe(one.seconds)
            if one.job.attempt:
                self.attempts.labels(one.evidence.proof.value).inc()
            operation = one.row.operation
            if one.review is not None and one.review[0] == UNDECIDED:
                self.tell_undecided([Undecided(operation.id, UNDECIDED, one.review[1].partition(":")[0])])
            if one.tells:
                self.settled.labels(operation.effect, operation.state.value).inc()

    def show_states(self, rows: Sequence[tuple[str, int, float]]) -> None:
        """Show how many operations of the database are not settled."""
        found = {state: (count, oldest) for state, count, oldest in rows}
        for state in _OPEN_STATES:
            count, oldest = found.get(state.value, (0, 0.0))
            self.open.labels(state.value).set(count)
            self.oldest_seconds.labels(state.value).set(oldest)

    def show_paused(self, accounts: Iterable[str], *, paused: Iterable[str]) -> None:
        """Show which accounts are paused."""
        names = set(paused)
        for account in accounts:
            self.paused.labels(account).set(account in names)
