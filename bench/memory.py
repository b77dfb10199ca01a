"""What a process keeps per 100,000 events, after it has warmed up.

Rule: the slope is the median of the slopes between all samples, of each process's own resident memory over the events
that have gone the whole road.  Warm means that what is bounded has been full once: a burst comes first, which makes
batches, pages and the client's prefetch as large as they can get.  Otherwise every batch that is larger than all before
it would count as growth, and how large they get depends on what else the machine does.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack

import psycopg

from bench.children import SideFailed
from bench.end_to_end import CONNECTIONS
from bench.figures import Figure, Measured
from bench.measuring import median_slope
from bench.stage import Stage
from bench.statements import statements
from bench.whole_road import PARTS, paced_load, whole_road

SLOPE_MIB_MAX = 1.0
PER_EVENTS = 100_000
SAMPLE_SECONDS = 0.5
STALL_SECONDS_MAX = 60.0
_SQL = statements("bench")

FIGURES = tuple(
    Figure(
        f"memory_slope_mib_{part}", f"growth of the {part} per 100,000 events", SLOPE_MIB_MAX, at_most=True, unit="MiB"
    )
    for part in PARTS
)


def measure(stage: Stage) -> list[Measured]:
    """Measure all figures of this module."""
    sizes = stage.sizes
    paced = sizes.memory_warm_up + sizes.memory_events
    warm_at, total = sizes.memory_burst + sizes.memory_warm_up, sizes.memory_burst + paced
    told = {"events": paced, "per_second": sizes.memory_per_second, "series": "M", "connections": CONNECTIONS}
    samples: dict[str, list[tuple[float, float]]] = {part: [] for part in PARTS}
    with ExitStack() as stack:
        running = stack.enter_context(whole_road(stage))
        connection = stack.enter_context(psycopg.connect(running.database_url, autocommit=True))
        stage.fill(running.road, sizes.memory_burst, series="W")
        load, _ = stack.enter_context(paced_load(stage, {**told, "url": running.webhook_url}))
        published, changed_at = 0, time.monotonic()
        while published < total:
            time.sleep(SAMPLE_SECONDS if total > PER_EVENTS else SAMPLE_SECONDS / 25)
            row = connection.execute(_SQL["published"]).fetchone()
            assert row is not None
            if row[0] > published:
                published, changed_at = int(row[0]), time.monotonic()
            elif time.monotonic() - changed_at > STALL_SECONDS_MAX:
                raise SideFailed(f"{published} of {total} events went the road:\n{load.words()}")
            if published > warm_at:
                for part, child in running.parts.items():
                    samples[part].append((published / PER_EVENTS, child.memory_bytes() / 2**20))
    stage.say(f"  {total} events, {len(samples['bridge'])} samples")
    return [_measured(figure, samples[part]) for figure, part in zip(FIGURES, PARTS, strict=True)]


def _measured(figure: Figure, samples: list[tuple[float, float]]) -> Measured:
    if len({events for events, _ in samples}) <= 1:
        # A quick run may be over at the first look.
        samples = [*samples, (samples[-1][0] + 1, samples[-1][1])]
    notes = {"first MiB": samples[0][1], "last MiB": samples[-1][1], "samples": float(len(samples))}
    return Measured(figure, median_slope(samples), notes=notes)


if __name__ == "__main__":
    from bench.run import main

    sys.exit(main(sys.argv[1:], only=("memory",)))
