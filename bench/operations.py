"""Operations: how many a worker carries out, and how soon the call follows the request.

Rule: both sides make the same calls to the same simulator, a process of its own, with as many in flight; the ledger's
side is timed from the COMMIT of the requests until every row is settled, the loop from its first call.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psycopg
from confluent_kafka import Producer

from bench import effects
from bench.bodies import record_of
from bench.children import Child, SideFailed, onceflow_part, peer_environment, running, wait_for
from bench.figures import Figure, Measured
from bench.measuring import Side, alternate, median_ratio, percentile
from bench.simulated_stripe import API_KEY, SimulatedStripe, simulated_stripe
from bench.stage import Road, Stage
from bench.statements import statements
from onceflow import attach
from onceflow.settings_model import API_VERSION
from onceflow_processor.operations.effect import Effect
from onceflow_schemas.sql import queries

IN_FLIGHT = 32
LATENCY_MS = 20.0
BUDGET = 10_000
"""Calls per second and at once: no side is limited."""
SETTLED_SECONDS_MAX = 120.0
FLUSH_SECONDS = 10.0
_SQL = statements("operations")
_WAKE = queries("operation_requests")["wake"]

FIGURES = (
    Figure(
        "operations_vs_bare_sdk",
        "operations of one call, 32 in flight, Stripe 20 ms away / threads with Stripe's SDK, no ledger",
        0.6,
    ),
    Figure(
        "request_to_call_p50_ms",
        "a handler's request is written -> its call is at Stripe, median",
        50.0,
        unit="ms",
        at_most=True,
    ),
)


@dataclass(slots=True)
class _Ground:
    """What all runs of this module stand on."""

    stage: Stage
    road: Road
    database_url: str
    connection: psycopg.Connection[Any]
    simulator: SimulatedStripe
    operator: Child
    cpu_microseconds: dict[str, float] = field(default_factory=dict)
    runs: int = 0

    def series(self) -> str:
        """Return the beginning of the subjects of the next run."""
        self.runs += 1
        return f"evt_O{self.runs:03d}x"

    def ask(self, effect: Effect, subjects: list[str], *, charge: str) -> None:
        """Ask for operations as an application does, in one transaction."""
        with self.connection.transaction():
            for subject in subjects:
                tx = attach(self.connection, cause=f"bench:{subject}")
                tx.request(effect, subject=subject, charge=charge)

    def wait_settled(self) -> None:
        """Wait until nothing is to be done any more."""
        what = "operations are settled"
        wait_for(self._is_all_settled, limit_seconds=SETTLED_SECONDS_MAX, what=what, child=self.operator)

    def check_succeeded(self, series: str, *, count: int) -> None:
        """Check that each operation of a run has succeeded, with one refund."""
        found = self.connection.execute(_SQL["states"], {"series": series}).fetchall()
        if found != [("succeeded", count)]:
            raise SideFailed(f"{count} operations became {found}")
        self.simulator.refunds(expected=count)

    def _is_all_settled(self) -> bool:
        # Planned anew each time: the table grows from nothing to thousands of rows at once.
        return self.connection.execute(_SQL["first_unsettled"], prepare=False).fetchone() is None


def measure(stage: Stage) -> list[Measured]:
    """Measure all figures of this module."""
    with _ground(stage) as ground:
        latency = _measure_latency(ground)
        sides = {
            "operations": _operations_side(ground, "operations", effects.refund),
            "operations, told": _operations_side(ground, "operations, told", effects.refund_told),
            "SDK": _sdk_side(ground),
        }
        for side in sides.values():
            side()  # so that no side begins cold
        rates = alternate(sides, rounds=stage.sizes.rounds, say=stage.say)
    notes = {"with a settled callback and its outcome": median_ratio(rates["operations, told"], rates["SDK"])}
    notes |= {f"CPU us per call, {name}": used for name, used in ground.cpu_microseconds.items()}
    value = median_ratio(rates["operations"], rates["SDK"])
    return [Measured(FIGURES[0], value, rates, notes), latency]


@contextmanager
def _ground(stage: Stage) -> Iterator[_Ground]:
    road = stage.road()
    with ExitStack() as stack:
        simulator = stack.enter_context(simulated_stripe(stage))
        url = stack.enter_context(stage.database(road))
        settings = _settings(stage, road, url=url, simulator=simulator)
        operator, _ = stack.enter_context(
            onceflow_part("operate", name="operator", settings=settings, folder=stage.folder)
        )
        connection = stack.enter_context(psycopg.connect(url, autocommit=True))
        yield _Ground(stage, road, url, connection, simulator, operator)


def _settings(stage: Stage, road: Road, *, url: str, simulator: SimulatedStripe) -> Mapping[str, Any]:
    return {
        **stage.settings(road, database_url=url, handlers="bench.effects:handlers"),
        "stripe.api_key": API_KEY,
        "stripe.api_base": simulator.url,
        "operations.concurrency": IN_FLIGHT,
        "operations.requests_per_second": BUDGET,
        "operations.burst": BUDGET,
    }


def _operations_side(ground: _Ground, name: str, effect: Effect) -> Side:
    def run() -> float:
        count = ground.stage.sizes.operations
        charge, series = ground.simulator.begin(latency_ms=LATENCY_MS), ground.series()
        ground.ask(effect, [f"{series}{number:08d}" for number in range(count)], charge=charge)
        cpu = ground.operator.cpu_seconds()
        begun = time.monotonic()
        ground.connection.execute(_WAKE)
        ground.wait_settled()
        seconds = time.monotonic() - begun
        ground.cpu_microseconds[name] = (ground.operator.cpu_seconds() - cpu) / count * 1e6
        ground.check_succeeded(series, count=count)
        return count / seconds

    return run


def _sdk_side(ground: _Ground) -> Side:
    stage = ground.stage

    def run() -> float:
        count = stage.sizes.operations
        answer_file = stage.folder / "sdk_loop.json"
        answer_file.unlink(missing_ok=True)
        told = {
            "url": ground.simulator.url,
            "api_key": API_KEY,
            "charge": ground.simulator.begin(latency_ms=LATENCY_MS),
            "calls": count,
            "in_flight": IN_FLIGHT,
            "answer_file": str(answer_file),
        }
        argv = [str(stage.peer_python), str(stage.peers_folder / "sdk_loop.py"), json.dumps(told)]
        cpu = ground.simulator.child.cpu_seconds()
        with running("sdk_loop", argv, environment=peer_environment(), folder=stage.folder) as child:
            ended = lambda: answer_file.exists() or child.process.poll() is not None  # noqa: E731
            wait_for(ended, limit_seconds=SETTLED_SECONDS_MAX, what="the SDK's loop is done")
            if not answer_file.exists():
                child.check()
        answer = json.loads(answer_file.read_text("utf-8"))
        ground.cpu_microseconds["simulator"] = (ground.simulator.child.cpu_seconds() - cpu) / count * 1e6
        ground.cpu_microseconds["SDK"] = answer["cpu_seconds"] / count * 1e6
        ground.simulator.refunds(expected=count)
        return float(answer["per_second"])

    return run


def _measure_latency(ground: _Ground) -> Measured:
    """At a low rate: through the processor, which wakes the workers up, and through an application, whose asking they find."""
    stage, road = ground.stage, ground.road
    settings = _settings(stage, road, url=ground.database_url, simulator=ground.simulator)
    with (
        onceflow_part("process", name="processor", settings=settings, folder=stage.folder) as (processor, _),
        _event_producer(stage) as producer,
    ):
        publish = partial(_publish, producer, road)
        _paced_requests(ground, publish, child=processor)  # so that the processor does not begin cold
        handler = _paced_requests(ground, publish, child=processor)
    application = _paced_requests(
        ground, lambda subject, charge: ground.ask(effects.refund, [subject], charge=charge), child=ground.operator
    )
    notes = {
        "99 of 100": percentile(handler, 99),
        "asked by an application, found by polls": percentile(application, 50),
        "asked by an application, 99 of 100": percentile(application, 99),
        "requests per second": stage.sizes.requests_per_second,
    }
    stage.say(f"  {len(handler)} requests, slowest {max(handler):.1f} ms")
    return Measured(FIGURES[1], percentile(handler, 50), notes=notes)


def _paced_requests(ground: _Ground, ask: Callable[[str, str], None], *, child: Child) -> list[float]:
    """Ask at a steady rate; returns the milliseconds from each operation's row, before its COMMIT, to its effect."""
    sizes = ground.stage.sizes
    charge, series = ground.simulator.begin(latency_ms=0.0), ground.series()
    begun = time.monotonic()
    for number in range(sizes.requests):
        time.sleep(max(0.0, begun + number / sizes.requests_per_second - time.monotonic()))
        ask(f"{series}{number:08d}", charge)
    asked_at: dict[str, float] = {}

    def is_asked() -> bool:
        rows = ground.connection.execute(_SQL["asked_at"], {"series": series})
        asked_at.update(dict(rows.fetchall()))
        return len(asked_at) == sizes.requests

    wait_for(is_asked, limit_seconds=SETTLED_SECONDS_MAX, what="all operations are asked for", child=child)
    ground.wait_settled()
    ground.check_succeeded(series, count=sizes.requests)
    refunds = ground.simulator.refunds(expected=sizes.requests).entries
    return [(entry["at"] - asked_at[entry["operation"]]) * 1000 for entry in refunds]


@contextmanager
def _event_producer(stage: Stage) -> Iterator[Producer]:
    producer = Producer({"bootstrap.servers": stage.bootstrap, "linger.ms": 0})
    yield producer
    producer.flush(FLUSH_SECONDS)


def _publish(producer: Producer, road: Road, event_id: str, charge: str) -> None:
    """Publish an event about a charge, as the bridge would."""
    body = {
        "id": event_id,
        "object": "event",
        "type": effects.EVENT_TYPE,
        "created": int(time.time()),
        "livemode": False,
        "api_version": API_VERSION,
        "data": {"object": {"id": charge, "object": "charge", "currency": "usd"}},
    }
    record = record_of(json.dumps(body).encode(), topic=road.events)
    headers: Any = record.headers
    producer.produce(road.events, record.value, record.key, headers=headers)
    producer.poll(0)


if __name__ == "__main__":
    from bench.run import main

    sys.exit(main(sys.argv[1:], only=("operations",)))
