"""A cluster that is put back from a copy while bridge and processor run: nobody stands still in silence.

Its leader epochs are older than those that the clients know, and new records refill the log past the old offsets.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from onceflow.embedded.services import EmbeddedServices
from onceflow.migrations import migrate
from onceflow_producer.broker_watch import BrokerWatch
from onceflow_producer.metrics import BridgeMetrics
from tests.processor.processor_process import Road, wait_until


def stop_and_copy(services: EmbeddedServices, copy: Path) -> None:
    services.kafka.stop()
    shutil.copytree(services.folder.kafka / "log", copy)


def start(services: EmbeddedServices) -> None:
    services.kafka.start()
    services.kafka.wait_ready()


def put_back(services: EmbeddedServices, *, copy: Path) -> None:
    log = services.folder.kafka / "log"
    services.kafka.stop()
    shutil.rmtree(log)
    shutil.copytree(copy, log)
    services.kafka.start()


def deliver(watch: BrokerWatch, topic: str) -> bool:
    """Send one record and say whether it was confirmed; its reports go to the watch, as the bridge does it."""
    answers: list[bool] = []

    def report(error: object, _message: object) -> None:
        answers.append(error is None)
        if error is None:
            watch.note_delivery()
        else:
            watch.note_delivery_error(error)  # type: ignore[arg-type]

    producer = watch.producer
    producer.produce(topic, key=b"k", value=b"not an event", headers=[], on_delivery=report)

    def reported() -> bool:
        producer.poll(0.05)
        return bool(answers)

    wait_until(reported, "the record has its report")
    return answers[0]


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.parametrize("knows_member", [True, False], ids=["of its member", "of a former member"])
def test_a_cluster_that_was_put_back_is_noticed_by_who_runs(
    tmp_path: Path, cache_dir: Path, *, knows_member: bool
) -> None:
    """Where the copy does not know the member, the partition is lost and given anew, to a client that knows no leader."""
    tmp_path.chmod(0o755)
    with EmbeddedServices(data_dir=tmp_path / "services", cache_dir=cache_dir) as services:
        with psycopg.connect(services.database_url) as connection:
            migrate(connection)
        road = Road(services.kafka_bootstrap, services.database_url, tmp_path, partitions=1)
        watch = BrokerWatch(
            {"bootstrap.servers": road.bootstrap},
            topic=road.outcomes,
            body_bytes_max=1_000_000,
            message_timeout_ms=1_000,
            metrics=BridgeMetrics(),
        )
        watch.start()
        road.publish([f"evt_a{number}" for number in range(20)])
        copy = tmp_path / "copy"
        if not knows_member:
            with road.processor():
                road.wait_for_events(20)
            stop_and_copy(services, copy)
            start(services)
        with road.processor():
            road.wait_for_events(20)
            if knows_member:
                stop_and_copy(services, copy)
                start(services)
            # Each start raises the leader epochs; only the copy does not know of it.
            for _ in range(2):
                services.kafka.stop()
                start(services)
            road.publish([f"evt_b{number}" for number in range(20)])
            road.wait_for_events(40)
            wait_until(lambda: deliver(watch, road.outcomes), "the producer works before")
            with ThreadPoolExecutor(1) as pool:
                put_back(services, copy=copy)
                refill = pool.submit(road.publish, [f"evt_c{number}" for number in range(60)])
                services.kafka.wait_ready()
                refill.result()
            wait_until(lambda: set(road.stopped().values()) == {"fingerprint_differs"}, "the partition is stopped")
            wait_until(lambda: deliver(watch, road.outcomes), "the producer works again")
        watch.close(within_seconds=5)
