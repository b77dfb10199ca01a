"""The whole record path: records in a topic, through decoding, attestation, handler and outcome, into PostgreSQL.

Rule: every side is a process of its own that reads the same topic from its begin into a fresh database; its rate is
taken from outside, from how the database grows, between the first rows and the last.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from bench.bodies import bodies
from bench.children import Child, SideFailed, onceflow_part, peer_environment, product_environment, running
from bench.figures import Figure, Measured
from bench.handlers import number_of
from bench.measuring import Side, alternate, median_ratio
from bench.stage import Road, Stage
from bench.statements import statements

FIRST_SECONDS_MAX = 60.0
STALL_SECONDS_MAX = 30.0
POLL_SECONDS = 0.02
_SQL = statements("bench")

FIGURES = (
    Figure("processor_vs_per_event", "whole record path / one transaction per event, 3 kB bodies", 7.0),
    Figure("processor_sql_vs_per_event", "the same, one SQL statement in each handler", 3.0),
    Figure("processor_vs_faststream", "whole record path / FastStream, a handler and a transaction per event"),
    Figure("processor_vs_faststream_batch", "whole record path / FastStream batches, set-based insert", 1.0),
    Figure("processor_vs_dbos", "whole record path / DBOS, a durable workflow per event"),
    Figure("repeated_facts_vs_none", "every second event's fact was claimed by another event / none was", 0.6),
    Figure("repeated_facts_undeclared", "the same, the handler does not declare its facts"),
    Figure("failing_1_percent_vs_none", "one event in a hundred fails and is quarantined / none", 0.7),
)
_RATIOS = {
    "processor_vs_per_event": ("processor", "per event"),
    "processor_sql_vs_per_event": ("processor, sql", "per event, sql"),
    "processor_vs_faststream": ("processor", "faststream"),
    "processor_vs_faststream_batch": ("processor", "faststream batch"),
    "processor_vs_dbos": ("processor", "dbos"),
    "repeated_facts_vs_none": ("facts, half taken", "facts, all free"),
    "repeated_facts_undeclared": ("undeclared, half taken", "facts, all free"),
    "failing_1_percent_vs_none": ("processor, 1 % failing", "processor"),
}


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs sides over one filled topic."""

    stage: Stage
    road: Road
    cpu_shares: dict[str, list[float]]

    def product(self, name: str, handlers: str = "plain", *, taken: bool = False, quarantine_max: float = 0.0) -> Side:
        """A side that is ``onceflow process``; ``taken`` claims every second event's fact beforehand."""

        def run() -> float:
            with self.stage.database(self.road) as url:
                if taken:
                    self._take_facts(url)
                settings = self.stage.settings(self.road, database_url=url, handlers=f"bench.handlers:{handlers}")
                with onceflow_part("process", name="processor", settings=settings, folder=self.stage.folder) as (
                    child,
                    _,
                ):
                    return self._rate(name, child, url, question="done_by_progress", quarantine_max=quarantine_max)

        return run

    def per_event(self, name: str, handlers: str) -> Side:
        """A side that is the consumer written by hand."""

        def run() -> float:
            with self.stage.database(self.road) as url:
                told = {"bootstrap": self.stage.bootstrap, "database_url": url, "topic": self.road.events}
                argv = [sys.executable, "-m", "bench.per_event", json.dumps({**told, "handlers": handlers})]
                environment = product_environment({})
                with running("per_event", argv, environment=environment, folder=self.stage.folder) as child:
                    return self._rate(name, child, url, question="done_by_progress")

        return run

    def peer(self, name: str, script: str) -> Side:
        """A side that is another library, in its own environment."""

        def run() -> float:
            with self.stage.database(self.road) as url, self._peer(script, url) as child:
                return self._rate(name, child, url, question="done_by_events")

        return run

    @contextmanager
    def _peer(self, script: str, url: str) -> Iterator[Child]:
        # A group of its own: one that an earlier run has committed to would begin where that run ended.
        told = {"bootstrap": self.stage.bootstrap, "database_url": url, "topic": self.road.events}
        told["group"] = f"{script}-{uuid.uuid4().hex[:8]}"
        argv = [str(self.stage.peer_python), str(self.stage.peers_folder / f"{script}.py"), json.dumps(told)]
        with running(script, argv, environment=peer_environment(), folder=self.stage.folder) as child:
            yield child

    def _take_facts(self, url: str) -> None:
        ids = [event_id for event_id, _ in bodies(self.stage.sizes.records, series="R") if number_of(event_id) % 2]
        with psycopg.connect(url) as connection:
            connection.execute(_SQL["facts_of_others"], {"keys": ids})

    def _check_quarantine(self, connection: psycopg.Connection[Any], most: float) -> None:
        """A side that quarantines what it should handle would only look fast, or slow."""
        row = connection.execute(_SQL["quarantined"]).fetchone()
        assert row is not None
        if row[0] > most * self.stage.sizes.records:
            raise SideFailed(f"{row[0]} events were quarantined, first as {row[1]}")

    def _rate(self, name: str, child: Child, url: str, *, question: str, quarantine_max: float = 0.0) -> float:
        with psycopg.connect(url, autocommit=True) as connection:

            def count() -> int:
                row = connection.execute(_SQL[question]).fetchone()
                assert row is not None
                return int(row[0])

            cpu = child.cpu_seconds()
            rate, seconds = rate_of(count, child, total=self.stage.sizes.records, seconds_max=self.stage.sizes.seconds)
            self._check_quarantine(connection, quarantine_max)
            self.cpu_shares.setdefault(name, []).append((child.cpu_seconds() - cpu) / seconds)
            return rate


def rate_of(count: Callable[[], int], child: Child, *, total: int, seconds_max: float) -> tuple[float, float]:
    """Watch a side work; return its events per second and the seconds watched.

    Args:
        count: how many events are done now.
        child: the side; its end is a failure.
        total: where it ends.
        seconds_max: after this long enough is seen.
    """
    begun = time.monotonic()
    first = last = 0
    first_at = last_at = begun
    while last < total:
        time.sleep(POLL_SECONDS)
        child.check()
        found, now = count(), time.monotonic()
        if found > last:
            last, last_at = found, now
            if not first:
                # The first rows tell when the work had begun, and are not counted.
                first, first_at = found, now
        if first and now - first_at > seconds_max:
            break
        limit = STALL_SECONDS_MAX if first else FIRST_SECONDS_MAX
        if now - last_at > limit:
            raise SideFailed(f"{child.log.stem} stands still at {last} of {total} events:\n{child.words()}")
    if last == first:
        # All came at once, as in a quick run: then only the whole time is known.
        return total / (last_at - begun), last_at - begun
    return (last - first) / (last_at - first_at), last_at - first_at


def measure(stage: Stage) -> list[Measured]:
    """Measure all figures of this module, each side once per round."""
    runs = _Runs(stage, stage.filled_road(stage.sizes.records), {})
    sides = {
        "processor": runs.product("processor"),
        "per event": runs.per_event("per event", "plain"),
        "processor, sql": runs.product("processor, sql", "with_sql"),
        "per event, sql": runs.per_event("per event, sql", "with_sql"),
        "faststream": runs.peer("faststream", "faststream_events"),
        "faststream batch": runs.peer("faststream batch", "faststream_batches"),
        "dbos": runs.peer("dbos", "dbos_events"),
        "facts, all free": runs.product("facts, all free", "claiming"),
        "facts, half taken": runs.product("facts, half taken", "claiming", taken=True),
        "undeclared, half taken": runs.product("undeclared, half taken", "claiming_undeclared", taken=True),
        "processor, 1 % failing": runs.product("processor, 1 % failing", "failing", quarantine_max=0.02),
    }
    rates = alternate(sides, rounds=stage.sizes.rounds, say=stage.say)
    found = []
    for figure in FIGURES:
        over, under = _RATIOS[figure.name]
        notes = {f"cores used by {side}": max(runs.cpu_shares[side]) for side in (over, under)}
        value = median_ratio(rates[over], rates[under])
        found.append(Measured(figure, value, {over: rates[over], under: rates[under]}, notes))
    return found


if __name__ == "__main__":
    from bench.run import main

    sys.exit(main(sys.argv[1:], only=("processor",)))
