"""The processor on a ledger with ten million markers, against the same processor on an empty one; ``make bench-large``.

Rule: both sides read the same new events and take turns in one run; each gets a fresh copy of its database, made in the same way.
"""

from __future__ import annotations

import hashlib
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import psycopg
from psycopg import sql

from bench.children import onceflow_part
from bench.database import BATCH_RECORDS, Batches, begin_partitions, work_of
from bench.figures import Figure, Measured
from bench.measuring import Side, alternate, median_ratio
from bench.processor import rate_of
from bench.stage import Road, Stage
from bench.statements import statements
from onceflow_processor.retention.duty import PAGES_MAX, REST_SECONDS_MIN
from onceflow_processor.retention.store import RetentionStore

KEEP_DAYS = 72
MARKERS_SECONDS = 80 * 86_400
"""The time over which the markers were made, as in ``sql/large.sql``."""
LEASE = "relay:bench"
_SQL, _BENCH = statements("large"), statements("bench")

FIGURES: tuple[Figure, ...] = (
    Figure("processor_10m_markers_vs_empty", "new events beside 10,000,000 markers / with an empty inbox", 0.8),
    Figure("processor_db_10m_markers_vs_empty", "the same, the database part alone, batch by batch in turns", 0.8),
    Figure("processor_beside_deletion", "10,000,000 markers, the oldest deleted meanwhile / nothing is deleted", 0.8),
)


@dataclass(frozen=True, slots=True)
class _Runs:
    stage: Stage
    road: Road
    notes: dict[str, list[float]] = field(default_factory=dict)

    def side(self, road: Road, *, deletes: bool = False) -> Side:
        """Process the topic on a copy of a road's database."""

        def run() -> float:
            with self._copy(road) as url, self._deleting(url, wanted=deletes):
                settings = self.stage.settings(self.road, database_url=url)
                with (
                    psycopg.connect(url, autocommit=True) as connection,
                    onceflow_part("process", name="processor", settings=settings, folder=self.stage.folder) as (
                        child,
                        _,
                    ),
                ):

                    def done() -> int:
                        row = connection.execute(_BENCH["done_by_progress"]).fetchone()
                        assert row is not None
                        return int(row[0])

                    sizes = self.stage.sizes
                    rate, _seconds = rate_of(done, child, total=sizes.records, seconds_max=sizes.seconds)
                    return rate

        return run

    def batches_in_turns(self, empty: Road, full: Road) -> dict[str, list[float]]:
        """Write the same batches to both databases, a batch here and a batch there; returns events per second of each.

        What else the machine does meets both sides alike, which turns of many seconds cannot promise.
        """
        work = work_of(self.stage.sizes.records, ids=event_id)
        rates: dict[str, list[float]] = {"empty": [], "full": []}
        with (
            self._copy(empty) as here,
            self._copy(full) as there,
            psycopg.connect(here) as one,
            psycopg.connect(there) as two,
        ):
            for connection in (one, two):
                begin_partitions(connection)
            sides = [("empty", Batches(one)), ("full", Batches(two))]
            for start in range(0, len(work), BATCH_RECORDS):
                batch = work[start : start + BATCH_RECORDS]
                for name, batches in sides:
                    begun = time.monotonic()
                    batches.run(batch)
                    rates[name].append(len(batch) / (time.monotonic() - begun))
                sides.reverse()
        return rates

    @contextmanager
    def _copy(self, road: Road) -> Iterator[str]:
        """A copy by files: block by block through the log it would take minutes."""
        name = f"{road.template}_copy"
        given = {"name": sql.Identifier(name), "template": sql.Identifier(road.template)}
        copy = "CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY"
        with psycopg.connect(self.stage.database_url, autocommit=True) as connection:
            connection.execute(sql.SQL(copy).format(**given))
            connection.execute(_BENCH["settle"])
            try:
                yield self.stage.url_of(name)
            finally:
                connection.execute(sql.SQL("DROP DATABASE {name} WITH (FORCE)").format(**given))

    @contextmanager
    def _deleting(self, url: str, *, wanted: bool) -> Iterator[None]:
        """Slices of the duty's own size and with its rest, one after the other, for as long as the block runs."""
        if not wanted:
            yield
            return
        stop = threading.Event()
        worker = threading.Thread(target=self._delete, args=(url, stop))
        worker.start()
        try:
            yield
        finally:
            stop.set()
            worker.join()

    def _delete(self, url: str, stop: threading.Event) -> None:
        begun, deleted, slowest = time.monotonic(), 0, 0.0
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(_SQL["lease"], {"name": LEASE})
            store = RetentionStore(connection, lease_name=LEASE, token=1)
            while not stop.is_set():
                at = time.monotonic()
                deleted += store.retire_markers(keep_days=KEEP_DAYS, pages_max=PAGES_MAX).deleted
                took = time.monotonic() - at
                slowest = max(slowest, took)
                stop.wait(max(REST_SECONDS_MIN, took))
        self.notes.setdefault("markers deleted per second", []).append(deleted / (time.monotonic() - begun))
        self.notes.setdefault("slowest slice, ms", []).append(slowest * 1_000)


def event_id(number: int) -> str:
    """Return the id of a new event, a hundred of which are made in a second; ``sql/large.sql`` has the older ones."""
    kind, chance = (
        "3N" if number % 3 == 0 else "1N",
        hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest()[:8],
    )
    return f"evt_{kind}{MARKERS_SECONDS + number // 100:06x}kYlo2C{chance}"


def measure(stage: Stage) -> list[Measured]:
    """Measure all figures of this module."""
    empty = stage.road()
    stage.fill(empty, stage.sizes.records, series="L", ids=event_id)
    full = replace(empty, template=f"{empty.template}_full")
    sizes = _fill(stage, empty, full)
    runs = _Runs(stage, empty)
    sides = {
        "empty": runs.side(empty),
        "10m markers": runs.side(full),
        "10m markers, deleting": runs.side(full, deletes=True),
    }
    rates = alternate(sides, rounds=stage.sizes.rounds, say=stage.say)
    turns = runs.batches_in_turns(empty, full)

    def measured(number: int, over: str, under: str, notes: dict[str, float]) -> Measured:
        sides = {over: rates[over], under: rates[under]}
        return Measured(FIGURES[number], median_ratio(rates[over], rates[under]), sides, notes)

    deletion = {name: max(values) for name, values in runs.notes.items()}
    return [
        measured(0, "10m markers", "empty", sizes),
        Measured(
            FIGURES[1],
            median_ratio(turns["full"], turns["empty"]),
            {},
            {name: statistics.median(found) for name, found in turns.items()},
        ),
        measured(2, "10m markers, deleting", "10m markers", deletion),
    ]


def _fill(stage: Stage, empty: Road, full: Road) -> dict[str, float]:
    """Make the road's other database, with markers; returns how large it is."""
    begun = time.monotonic()
    with psycopg.connect(stage.database_url, autocommit=True) as connection:
        names = sql.Identifier(full.template), sql.Identifier(empty.template)
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*names))
    with psycopg.connect(stage.url_of(full.template), autocommit=True) as connection:
        connection.execute(_SQL["unindexed"])
        connection.execute(_SQL["markers"], {"count": stage.sizes.markers})
        connection.execute(_SQL["index"])
        connection.execute(_SQL["vacuum"])
        row = connection.execute(_SQL["size"]).fetchone()
    assert row is not None
    stage.say(f"  {stage.sizes.markers:,} markers in {time.monotonic() - begun:.0f} s, {row[0]:.0f} + {row[1]:.0f} MiB")
    return {"markers": stage.sizes.markers, "table MiB": float(row[0]), "index MiB": float(row[1])}


if __name__ == "__main__":
    from bench.run import main

    sys.exit(main(sys.argv[1:], only=("large",)))
