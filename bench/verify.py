"""The proof, against a bare scan of the same topics.

Rule: both sides read the same topics in one run and take turns, in this process; the proof must find nothing unexplained, or its
time says nothing.
"""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import psycopg
from confluent_kafka import Consumer, TopicPartition

from bench.children import SideFailed, onceflow_part
from bench.figures import Figure, Measured
from bench.measuring import Side, alternate, median_ratio
from bench.processor import rate_of
from bench.stage import PARTITIONS, Road, Stage
from bench.statements import statements
from onceflow.settings import SettingSources, environment_for_child, load_settings
from onceflow.verifying import answer_of

SCAN_RECORDS = 2_000
SCAN_SECONDS = 0.5
OUTCOMES_SECONDS_MAX = 300.0
_SQL = statements("bench")

FIGURES = (
    Figure("verify_events_per_second", "events proved per second, Stripe's side left out", 20_000.0, unit="/s"),
    Figure("verify_vs_scan", "the proof / a consumer that reads the same topics and does nothing", 0.5),
    Figure(
        "verify_memory_mib",
        "what the proof adds to a process that has scanned the topics",
        300.0,
        unit="MiB",
        at_most=True,
    ),
)


@dataclass(frozen=True, slots=True)
class _Runs:
    stage: Stage
    road: Road
    url: str
    peak_mib: list[float] = field(default_factory=list)

    def prove(self) -> float:
        """Prove once; events per second."""
        settings = self.stage.settings(self.road, database_url=self.url)
        environment = environment_for_child({}, {}, overrides=settings)
        loaded = load_settings(SettingSources(), environment=environment).settings
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begun = time.monotonic()
        answer = answer_of(loaded, since=None, until=None, account=None, former=None, with_stripe=False)
        seconds = time.monotonic() - begun
        self.peak_mib.append((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
        if answer.unexplained_count or answer.events != self.stage.sizes.verify_events:
            raise SideFailed(
                f"the proof counts {answer.events} events and leaves {answer.unexplained_count} unexplained"
            )
        return answer.events / seconds

    def scan(self) -> float:
        """Read both topics and do nothing with them."""
        begun = time.monotonic()
        for topic in (self.road.events, self.road.outcomes):
            self._scan(topic)
        return self.stage.sizes.verify_events / (time.monotonic() - begun)

    def _scan(self, topic: str) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.stage.bootstrap,
                "group.id": "bench-scan",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.queue.backoff.ms": 20,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
            ended: set[int] = set()
            while len(ended) < PARTITIONS:
                for message in consumer.consume(SCAN_RECORDS, timeout=SCAN_SECONDS):
                    if message.error() is not None:
                        ended.add(message.partition() or 0)
        finally:
            consumer.close()


def _fill(stage: Stage, road: Road, url: str) -> None:
    """Have every event processed and every outcome published."""
    settings = stage.settings(road, database_url=url)
    with psycopg.connect(url, autocommit=True) as connection:

        def count(query: str) -> int:
            row: Any = connection.execute(_SQL[query]).fetchone()
            return int(row[0])

        with (
            onceflow_part("process", name="processor", settings=settings, folder=stage.folder) as (child, _),
            onceflow_part("relay", name="relay", settings=settings, folder=stage.folder),
        ):
            rate_of(lambda: count("done_by_progress"), child, total=stage.sizes.verify_events, seconds_max=float("inf"))
            give_up_at = time.monotonic() + OUTCOMES_SECONDS_MAX
            while count("unpublished"):
                child.check()
                if time.monotonic() > give_up_at:
                    raise SideFailed("the outcomes were not published in time")
                time.sleep(SCAN_SECONDS)


def measure(stage: Stage) -> list[Measured]:
    """Measure the figures of this module, each side once per round."""
    road = stage.road()
    stage.fill(road, stage.sizes.verify_events, series="V")
    with stage.database(road) as url:
        _fill(stage, road, url)
        runs = _Runs(stage, road, url)
        runs.scan()
        sides: dict[str, Side] = {"proof": runs.prove, "scan": runs.scan}
        rates = alternate(sides, rounds=stage.sizes.rounds, say=stage.say)
    per_second, ratio, memory = FIGURES
    return [
        Measured(per_second, sorted(rates["proof"])[len(rates["proof"]) // 2], {"proof": rates["proof"]}, {}),
        Measured(ratio, median_ratio(rates["proof"], rates["scan"]), rates, {}),
        Measured(memory, max(runs.peak_mib), {"proof": runs.peak_mib}, {}),
    ]


if __name__ == "__main__":
    from bench.run import main

    sys.exit(main(sys.argv[1:], only=("verify",)))
