"""The relay against the usual polling relay, and against a producer that has nothing to do but send.

Rule: outcomes become visible in one transaction while every relay is waiting; the rate is taken until the last of them
is marked as sent.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import psycopg
from confluent_kafka import Producer

from bench.bodies import DEPLOYMENT
from bench.children import Child, SideFailed, onceflow_part, peer_environment, product_environment, running, wait_for
from bench.figures import Figure, Measured
from bench.measuring import Side, alternate, median_ratio
from bench.stage import PARTITIONS, Stage
from bench.statements import statements
from onceflow_producer.lifetime import write_state
from onceflow_schemas.outcome_record import OutcomeRow, outcome_headers

SENT_SECONDS_MAX = 300.0
POLL_SECONDS = 0.02
"""Looking more often would take time from the server and so from both sides."""
POLLING_SHARE = 4
"""The polling relay gets a quarter of the rows: its rate does not depend on how many wait."""
_SQL = statements("relay")
_BENCH = statements("bench")

FIGURES = (
    Figure("relay_vs_polling", "relay / select for update skip locked limit 500, produce, flush, mark sent", 1.2),
    Figure("relay_vs_producer", "relay / plain idempotent producer that sends the same prepared bytes", 0.3),
)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Asks whether something is not published yet."""

    connection: psycopg.Connection[Any]
    question: str

    def is_any(self) -> bool:
        """Ask now."""
        row = self.connection.execute(_SQL[self.question]).fetchone()
        assert row is not None
        return bool(row[0])

    def seconds_until_none(self, child: Child, fill: Callable[[], None]) -> float:
        """Fill, and return how long it took until nothing was left."""
        with self.connection.transaction():
            fill()
            self.connection.execute(_SQL["analyse"])
        begun = time.monotonic()
        while self.is_any():
            child.check()
            if time.monotonic() - begun > SENT_SECONDS_MAX:
                raise SideFailed(f"{child.log.stem} did not publish everything:\n{child.words()}")
            time.sleep(POLL_SECONDS)
        return time.monotonic() - begun


def measure(stage: Stage) -> list[Measured]:
    """Measure all figures of this module."""
    road, polling_road = stage.road(), stage.road()
    per_lane = max(1, stage.sizes.outcomes // PARTITIONS)
    few = max(1, per_lane // POLLING_SHARE)
    with ExitStack() as stack:
        url = stack.enter_context(stage.database(road))
        other = stack.enter_context(stage.database(polling_road))
        settings = stage.settings(road, database_url=url)
        relay, _ = stack.enter_context(onceflow_part("relay", name="relay", settings=settings, folder=stage.folder))
        told = {"bootstrap": stage.bootstrap, "database_url": other, "topic": polling_road.outcomes}
        argv = [str(stage.peer_python), str(stage.peers_folder / "polling_relay.py"), json.dumps(told)]
        polling = stack.enter_context(
            running("polling_relay", argv, environment=peer_environment(), folder=stage.folder)
        )
        ours = stack.enter_context(psycopg.connect(url, autocommit=True))
        theirs = stack.enter_context(psycopg.connect(other, autocommit=True))
        sides = {
            "relay": _relay_side(ours, relay, per_lane),
            "polling": _polling_side(theirs, polling, few),
            "producer": _producer_side(stage, url, topic=polling_road.outcomes, per_lane=per_lane),
        }
        # Once for the producer's rows, and so that no side begins cold.
        for name in ("relay", "polling"):
            sides[name]()
        rates = alternate(sides, rounds=stage.sizes.rounds, say=stage.say)
    return [
        Measured(figure, median_ratio(rates["relay"], rates[under]), {"relay": rates["relay"], under: rates[under]})
        for figure, under in zip(FIGURES, ("polling", "producer"), strict=True)
    ]


def _relay_side(connection: psycopg.Connection[Any], relay: Child, per_lane: int) -> Side:
    waiting = _Waiting(connection, "unpublished")

    def fill() -> None:
        connection.execute(_SQL["fill_lanes"], {"per_lane": per_lane})

    def run() -> float:
        connection.execute(_BENCH["settle"])
        return per_lane * PARTITIONS / waiting.seconds_until_none(relay, fill)

    return run


def _polling_side(connection: psycopg.Connection[Any], polling: Child, per_lane: int) -> Side:
    waiting = _Waiting(connection, "unsent")

    def fill() -> None:
        connection.execute(_SQL["copy_for_polling"], {"per_lane": per_lane})

    def run() -> float:
        # The same statement makes the rows; a copy of them is what the usual relay reads.
        connection.execute(_SQL["fill_lanes"], {"per_lane": per_lane})
        connection.execute(_BENCH["settle"])
        return per_lane * PARTITIONS / waiting.seconds_until_none(polling, fill)

    return run


def _producer_side(stage: Stage, url: str, *, topic: str, per_lane: int) -> Side:
    def run() -> float:
        answer_file = stage.folder / "producer.json"
        answer_file.unlink(missing_ok=True)
        told = {"bootstrap": stage.bootstrap, "database_url": url, "topic": topic, "per_lane": per_lane}
        argv = [sys.executable, "-c", _CHILD, json.dumps({**told, "answer_file": str(answer_file)})]
        with running("producer", argv, environment=product_environment({}), folder=stage.folder) as child:
            ended = lambda: answer_file.exists() or child.process.poll() is not None  # noqa: E731
            wait_for(ended, limit_seconds=SENT_SECONDS_MAX, what="the producer is done")
            if not answer_file.exists():
                child.check()
        return float(json.loads(answer_file.read_text("utf-8"))["per_second"])

    return run


def produce_prepared(told: dict[str, Any]) -> None:
    """Read the rows, make their records, and only then start the clock."""
    with psycopg.connect(told["database_url"]) as connection:
        rows = [OutcomeRow(*row) for row in connection.execute(_SQL["rows"], {"per_lane": told["per_lane"]})]
    records = [
        (row.lane, row.key.encode(), row.value, cast("Any", outcome_headers(row, deployment=DEPLOYMENT)))
        for row in rows
    ]
    producer = Producer(
        {
            "bootstrap.servers": told["bootstrap"],
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    producer.list_topics(told["topic"], timeout=10)
    begun = time.monotonic()
    for lane, key, value, headers in records:
        producer.produce(told["topic"], value, key, lane, headers=headers)
    left = producer.flush(60)
    seconds = time.monotonic() - begun
    assert left == 0, f"{left} records were not confirmed"
    write_state(Path(told["answer_file"]), {"per_second": len(records) / seconds})


_CHILD = "import json, sys; from bench.relay import produce_prepared; produce_prepared(json.loads(sys.argv[1]))"

if __name__ == "__main__":
    from bench.run import main

    sys.exit(main(sys.argv[1:], only=("relay",)))
