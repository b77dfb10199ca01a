"""From the webhook's sending to the outcome in a read_committed consumer, at a steady rate.

Rule: the clock of an event starts when it was due, so a queue anywhere shows; sender and consumer share one monotonic
clock.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from bench.children import SideFailed
from bench.figures import Figure, Measured
from bench.measuring import percentile
from bench.stage import PARTITIONS, Stage
from bench.whole_road import WholeRoad, paced_load, whole_road

FIGURES = (
    Figure("end_to_end_p50_ms", "webhook sent -> outcome seen (read_committed), median", unit="ms", at_most=True),
    Figure("end_to_end_p99_ms", "webhook sent -> outcome seen (read_committed), 99 of 100", unit="ms", at_most=True),
)
WARM_UP_EVENTS = 400
CONNECTIONS = 32
LAST_SECONDS_MAX = 60.0
FETCH_SECONDS = 0.05


def measure(stage: Stage) -> list[Measured]:
    """Measure all figures of this module."""
    per_second = stage.sizes.end_to_end_per_second
    events = max(20, int(stage.sizes.end_to_end_seconds * per_second))
    with whole_road(stage) as running:
        warm_up = min(WARM_UP_EVENTS, events)
        measure_latencies(stage, running, {"events": warm_up, "per_second": per_second, "series": "W"})
        told = {"events": events, "per_second": per_second, "series": "E"}
        latencies, answer = measure_latencies(stage, running, told)
    notes = {"events per second": answer["per_second"], "load's cores": answer["load_share"], "events": float(events)}
    stage.say(f"  {events} events, slowest {max(latencies):.1f} ms")
    return [
        Measured(figure, percentile(latencies, percent), notes=notes)
        for figure, percent in zip(FIGURES, (50, 99), strict=True)
    ]


def measure_latencies(
    stage: Stage, running: WholeRoad, told: dict[str, Any], *, left_out: Collection[str] = ()
) -> tuple[list[float], dict[str, Any]]:
    """Send events and return each one's milliseconds, with what the load says about itself.

    Args:
        stage: the common ground.
        running: the road.
        told: events, per_second, series, and keys, as ``bench.load`` wants them.
        left_out: ids of events of which no outcome is awaited, and none counted.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": stage.bootstrap,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(running.road.outcomes, number, 0) for number in range(PARTITIONS)])
    try:
        with paced_load(stage, {**told, "url": running.webhook_url, "connections": CONNECTIONS}) as (load, answer_file):
            count = told["events"] - len(left_out)
            seen = _collect(consumer, f"evt_{told['series']}", count, left_out=left_out, running=running)
            load.process.wait(LAST_SECONDS_MAX)
            answer = _answer(answer_file, load.words())
    finally:
        consumer.close()
    return [(seen[event_id] - due) * 1000 for event_id, due in answer["due_at"].items() if event_id in seen], answer


def _collect(
    consumer: Consumer, prefix: str, count: int, *, left_out: Collection[str], running: WholeRoad
) -> dict[str, float]:
    seen: dict[str, float] = {}
    last = time.monotonic()
    while len(seen) < count:
        message = consumer.poll(FETCH_SECONDS)
        now = time.monotonic()
        if message is not None and message.error() is None:
            headers: dict[str, Any] = dict(message.headers() or [])
            event_id = headers["onceflow_cause"].decode("ascii").rpartition("/")[2]
            if event_id.startswith(prefix) and event_id not in left_out:
                seen[event_id] = last = now
        elif now - last > LAST_SECONDS_MAX:
            raise SideFailed(f"{len(seen)} of {count} outcomes came: {running.parts['processor'].words()}")
    return seen


def _answer(answer_file: Path, words: str) -> dict[str, Any]:
    if not answer_file.exists():
        raise SideFailed(words)
    answer: dict[str, Any] = json.loads(answer_file.read_text("utf-8"))
    return answer


if __name__ == "__main__":
    from bench.run import main

    sys.exit(main(sys.argv[1:], only=("end_to_end",)))
