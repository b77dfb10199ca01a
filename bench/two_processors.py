"""Two processors against one, over six partitions.

Rule: the partitions are shared out before the first record is published, so no rebalance falls into the time; and the
processors stand still until the last one is, or two of them would be done as soon as the publisher is.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import psycopg

from bench.children import Child, onceflow_part, wait_for
from bench.figures import Figure, Measured
from bench.measuring import Side, alternate, median_ratio
from bench.processor import rate_of
from bench.stage import PARTITIONS, Stage
from bench.statements import statements

FIGURES = (Figure("two_processors_vs_one", "two processors / one, six partitions, all on this machine"),)
SHARED_SECONDS_MAX = 120.0
SECONDS_FACTOR = 4
"""A side is watched until its end."""

_SQL = statements("bench")


def measure(stage: Stage) -> list[Measured]:
    """Measure the figure of this module."""
    sides = {"two": _side(stage, 2), "one": _side(stage, 1)}
    rates = alternate(sides, rounds=stage.sizes.rounds, say=stage.say)
    return [Measured(FIGURES[0], median_ratio(rates["two"], rates["one"]), rates)]


def _side(stage: Stage, processors: int) -> Side:
    def run() -> float:
        road = stage.road()
        with ExitStack() as stack:
            url = stack.enter_context(stage.database(road))
            settings = stage.settings(road, database_url=url)
            names = [f"processor-{number}" for number in range(processors)]
            parts = [onceflow_part("process", name=name, settings=settings, folder=stage.folder) for name in names]
            children = [stack.enter_context(part)[0] for part in parts]
            connection = stack.enter_context(psycopg.connect(url, autocommit=True))

            def ask(question: str) -> tuple[int, ...]:
                return connection.execute(_SQL[question]).fetchone() or ()

            wanted = (PARTITIONS, processors, PARTITIONS // processors)
            wait_for(
                lambda: ask("shared_out") == wanted,
                limit_seconds=SHARED_SECONDS_MAX,
                what=f"{processors} share the partitions",
                child=children[0],
            )
            with _standing_still(children):
                stage.fill(road, stage.sizes.records, series="T")
            rate, _ = rate_of(
                lambda: ask("done_by_progress")[0],
                children[0],
                total=stage.sizes.records,
                seconds_max=stage.sizes.seconds * SECONDS_FACTOR,
            )
            return rate

    return run


@contextmanager
def _standing_still(children: Sequence[Child]) -> Iterator[None]:
    """Stop the processes for less time than their sessions in the group last."""
    for child in children:
        child.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for child in children:
            child.process.send_signal(signal.SIGCONT)


if __name__ == "__main__":
    from bench.run import main

    sys.exit(main(sys.argv[1:], only=("two_processors",)))
