"""Events that never came by webhook: how soon they are found and processed, and what live traffic notices of it.

Rule: the simulator limits requests as Stripe does (100 a second for an account, 25 for one kind of list), and the time that its
limit alone asks for is computed from it, not measured.
"""

from __future__ import annotations

import json
import math
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import psycopg
from prometheus_client.parser import text_string_to_metric_families

from bench.bodies import ACCOUNT, bodies
from bench.children import SideFailed, onceflow_part, wait_for
from bench.end_to_end import WARM_UP_EVENTS, measure_latencies
from bench.figures import Figure, Measured
from bench.measuring import Side, alternate, median_ratio, percentile
from bench.simulated_stripe import API_KEY, SimulatedStripe, simulated_stripe
from bench.stage import Stage
from bench.statements import statements
from bench.whole_road import whole_road
from onceflow_simulator.client import SimulatorClient

PER_ACCOUNT, PER_ENDPOINT, PAGE = 100, 25, 100
READS_PER_SECOND = 20
HEAL_SECONDS_MAX = 120.0
PERCENT = 99
MISSED_HOURS = 2
"""The outage lies so far back, and its events are this far apart."""
IDLE_LOOKS = 12
"""More than the ten looks between which the webhook endpoints are read once."""
IDLE_CYCLE_SECONDS = 1.0
LOOK_SECONDS_MAX = 30.0
METRICS_SECONDS_MAX = 5.0
READ_PATHS = ("/v1/events", "/v1/payment_intents", "/v1/refunds", "/v1/webhook_endpoints")
_SQL = statements("bench")

FIGURES = (
    Figure(
        "heal_vs_api_limit",
        "missed events found and processed / the time that Stripe's limit alone asks for",
        2.0,
        at_most=True,
    ),
    Figure("healing_others_p99", "p99 of live traffic while missed events are brought / without", 1.5, at_most=True),
    Figure("idle_reads", "reads at Stripe of an account, the most in a look with nothing to do", 5.0, at_most=True),
)


def _missed(count: int) -> list[dict[str, Any]]:
    """Events of an hour, two hours ago."""
    begun = int(time.time()) - MISSED_HOURS * 3600
    told = []
    for number, (_, body) in enumerate(bodies(count, series="M")):
        told.append({**json.loads(body), "created": begun + number * 3600 // count, "livemode": False})
    return told


@contextmanager
def _reconciling(
    stage: Stage, settings: dict[str, Any], stripe: SimulatedStripe, **more: object
) -> Iterator[dict[str, Any]]:
    given = {
        **settings,
        "stripe.api_base": stripe.url,
        "stripe.api_key": API_KEY,
        "reconciler.requests_per_second": READS_PER_SECOND,
        "reconciler.first_hours": MISSED_HOURS + 1,
        "reconciler.grace_seconds": 1,
        **more,
    }
    with onceflow_part("reconcile", name="reconciler", settings=given, folder=stage.folder) as (_, state):
        yield state


def _begin(stripe: SimulatedStripe, count: int) -> None:
    client = SimulatorClient(stripe.url)
    client.reset()
    client.set(account_per_second=PER_ACCOUNT, endpoint_per_second=PER_ENDPOINT)
    client.tell_events(_missed(count), account=ACCOUNT)


def _heal(stage: Stage, stripe: SimulatedStripe) -> float:
    """Return the seconds from the reconciler's start until each missed event is done, over what the limit asks for."""
    count = stage.sizes.missed_events
    limit_seconds = math.ceil(count / PAGE) / PER_ENDPOINT
    _begin(stripe, count)
    with whole_road(stage) as running, psycopg.connect(running.database_url, autocommit=True) as connection:

        def done() -> bool:
            row: Any = connection.execute(_SQL["brought"]).fetchone()
            return bool(row[0] >= count)

        settings = stage.settings(running.road, database_url=running.database_url)
        begun = time.monotonic()
        with _reconciling(stage, settings, stripe):
            wait_for(
                done,
                limit_seconds=HEAL_SECONDS_MAX,
                what="all missed events are done",
                child=running.parts["processor"],
            )
            seconds = time.monotonic() - begun
    stage.say(
        f"  {count:,} missed events done after {seconds:.1f} s; Stripe's limit alone asks for {limit_seconds:.1f} s"
    )
    return seconds / limit_seconds


def _live(stage: Stage, stripe: SimulatedStripe, *, healing: bool) -> Side:
    per_second = stage.sizes.end_to_end_per_second
    events = max(20, int(stage.sizes.end_to_end_seconds * per_second))

    def run() -> float:
        _begin(stripe, stage.sizes.missed_events)
        with whole_road(stage) as running:
            warm = {"events": min(WARM_UP_EVENTS, events), "per_second": per_second, "series": "W"}
            measure_latencies(stage, running, warm)
            told = {"events": events, "per_second": per_second, "series": "E"}
            if not healing:
                return percentile(measure_latencies(stage, running, told)[0], PERCENT)
            settings = stage.settings(running.road, database_url=running.database_url)
            with _reconciling(stage, settings, stripe):
                found = percentile(measure_latencies(stage, running, told)[0], PERCENT)
            with psycopg.connect(running.database_url) as connection:
                row: Any = connection.execute(_SQL["brought"]).fetchone()
            if not row[0]:
                raise SideFailed("nothing was brought meanwhile")
            return found

    return run


def _looks(metrics_url: str) -> int:
    with urllib.request.urlopen(metrics_url, timeout=METRICS_SECONDS_MAX) as answer:  # noqa: S310 - our own child's
        families = text_string_to_metric_families(answer.read().decode())
        samples = [sample for family in families for sample in family.samples]
    return int(sum(sample.value for sample in samples if sample.name == "onceflow_reconciler_looks_total"))


def _idle_reads(stage: Stage, stripe: SimulatedStripe) -> list[float]:
    """Return the reads of each of some looks at an account of which everything is known."""
    client = SimulatorClient(stripe.url)
    client.reset()
    road = stage.road()
    with stage.database(road) as url:
        settings = stage.settings(road, database_url=url)
        brief = {"reconciler.cycle_seconds": IDLE_CYCLE_SECONDS, "reconciler.first_hours": 1}
        with _reconciling(stage, settings, stripe, **brief) as state:

            def reads_after(looks: int) -> int:
                wait_for(
                    lambda: _looks(state["metrics_url"]) >= looks, limit_seconds=LOOK_SECONDS_MAX, what=f"look {looks}"
                )
                return sum(client.reads(path) for path in READ_PATHS)

            begun = _looks(state["metrics_url"]) + 1
            read = [reads_after(begun + number) for number in range(IDLE_LOOKS + 1)]
    return [float(after - before) for before, after in pairwise(read)]


def measure(stage: Stage) -> list[Measured]:
    """Measure the figures of this module."""
    healed, others, idle = FIGURES
    with simulated_stripe(stage) as stripe:
        ratios = [_heal(stage, stripe) for _ in range(stage.sizes.rounds)]
        sides = {"none": _live(stage, stripe, healing=False), "healing": _live(stage, stripe, healing=True)}
        found = alternate(sides, rounds=stage.sizes.rounds, say=stage.say, unit=" ms")
        reads = _idle_reads(stage, stripe)
    return [
        Measured(healed, sorted(ratios)[len(ratios) // 2], {"healed": ratios}),
        Measured(others, median_ratio(found["healing"], found["none"]), found),
        Measured(idle, max(reads), {"looks": reads}),
    ]


if __name__ == "__main__":
    from bench.run import main

    sys.exit(main(sys.argv[1:], only=("heal",)))
