"""Records whose events are processed already, against the same records when they are new: the same processor on both.

Rule: both sides read the same topic in one run and take turns; a replayed side gets a fresh copy of a database in which every
event has its marker, with the positions back at the begin of the log.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import psycopg

from bench.children import Child, onceflow_part
from bench.figures import Figure, Measured
from bench.measuring import Side, alternate, median_ratio
from bench.processor import rate_of
from bench.stage import Road, Stage
from bench.statements import statements

_SQL = statements("bench")

FIGURES = (Figure("replay_vs_new", "events that are processed already, read again / new ones", 2.0),)


@dataclass(frozen=True, slots=True)
class _Runs:
    stage: Stage
    road: Road
    cpu_shares: dict[str, list[float]] = field(default_factory=dict)

    def side(self, name: str, road: Road) -> Side:
        """Let the processor read the whole topic on a fresh copy of a road's database."""

        def run() -> float:
            with self.stage.database(road) as url:
                return self._process(name, url)

        return run

    def process_once(self, url: str) -> None:
        """Give every event its marker, then put the positions back."""
        self._process("filling", url)
        with psycopg.connect(url) as connection:
            connection.execute(_SQL["positions_back"])

    def _process(self, name: str, url: str) -> float:
        settings = self.stage.settings(self.road, database_url=url)
        with (
            psycopg.connect(url, autocommit=True) as connection,
            onceflow_part("process", name="processor", settings=settings, folder=self.stage.folder) as (child, _),
        ):
            return self._rate(name, connection, child)

    def _rate(self, name: str, connection: psycopg.Connection[Any], child: Child) -> float:
        def count() -> int:
            row = connection.execute(_SQL["done_by_progress"]).fetchone()
            assert row is not None
            return int(row[0])

        cpu = child.cpu_seconds()
        sizes = self.stage.sizes
        # Whoever fills a database must come to its end, however slow the machine is.
        seconds_max = float("inf") if name == "filling" else sizes.seconds
        rate, seconds = rate_of(count, child, total=sizes.records, seconds_max=seconds_max)
        self.cpu_shares.setdefault(name, []).append((child.cpu_seconds() - cpu) / seconds)
        return rate


def measure(stage: Stage) -> list[Measured]:
    """Measure the figure of this module, each side once per round."""
    road = stage.filled_road(stage.sizes.records)
    runs = _Runs(stage, road)
    with stage.database(road) as url:
        runs.process_once(url)
        done = replace(road, template=urlsplit(url).path.removeprefix("/"))
        sides = {"replayed": runs.side("replayed", done), "new": runs.side("new", road)}
        rates = alternate(sides, rounds=stage.sizes.rounds, say=stage.say)
    notes = {f"cores used by {side}": max(runs.cpu_shares[side]) for side in sides}
    [figure] = FIGURES
    return [Measured(figure, median_ratio(rates["replayed"], rates["new"]), rates, notes)]


if __name__ == "__main__":
    from bench.run import main

    sys.exit(main(sys.argv[1:], only=("replay",)))
