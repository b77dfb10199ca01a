"""A road on which every event was processed and every outcome published, made in bulk.

Rule: outcomes are published by the relay; records are copies of the bridge's with other ids (and attestations of their originals,
which nobody asks for once a record was processed), and markers, outcomes and positions are written by a few statements, since a
million of them would take bridge and processor longer than all that is measured.  The proof says whether they fit together.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from typing import Any, cast

import psycopg
from confluent_kafka import Consumer, Message, TopicPartition

from bench.bodies import ACCOUNT, DEPLOYMENT, TEMPLATES_MAX, bodies, record_of
from bench.children import SideFailed, onceflow_part
from bench.database import CLUSTER
from bench.stage import PARTITIONS, Road, Stage
from bench.statements import statements
from onceflow_processor.kafka_client import admin_client, topic_id
from onceflow_processor.records import Headers
from onceflow_processor.start_check import check_database
from onceflow_reconciler.verify.topic_scan import PAGE_RECORDS
from onceflow_schemas.event_record import TYPE_PREFIX, OutgoingRecord

SCAN_SECONDS = 0.5
OUTCOMES_SECONDS_MAX = 1_200.0
_BENCH, _PER_EVENT, _SQL = statements("bench"), statements("per_event"), statements("verify")


def scan(bootstrap: str, topic: str) -> Iterator[list[Message]]:
    """Read a topic from its begin to its end and do nothing; yield each page."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-scan",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            # As the proof has them, like the size of a page: the end of a log would take half a second to be told.
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 20,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        ended: set[int] = set()
        while len(ended) < PARTITIONS:
            page = []
            for message in consumer.consume(PAGE_RECORDS, timeout=SCAN_SECONDS):
                if message.error() is not None:
                    ended.add(message.partition() or 0)
                else:
                    page.append(message)
            yield page
    finally:
        consumer.close()


def fill_road(stage: Stage, road: Road) -> None:
    """Publish the events."""
    count = stage.sizes.verify_events
    begun = time.monotonic()
    originals = [
        (event_id, record_of(body, topic=road.events))
        for event_id, body in bodies(min(count, TEMPLATES_MAX), series="V")
    ]

    def copies() -> Iterator[OutgoingRecord]:
        for number in range(count):
            event_id, record = originals[number % len(originals)]
            own, other = event_id.encode(), f"evt_V{number:08d}".encode()
            headers = [(name, other if raw == own else raw) for name, raw in record.headers]
            yield record._replace(value=record.value.replace(own, other), headers=headers)

    stage.publish(road, copies())
    stage.say(f"  {count:,} events published in {time.monotonic() - begun:.0f} s")


def settle_road(stage: Stage, road: Road, url: str) -> None:
    """Have every event of the road processed and every outcome published."""
    begun = time.monotonic()
    settings = stage.settings(road, database_url=url)
    with psycopg.connect(url, autocommit=True) as connection:
        _write_rows(connection, stage, road)
        with onceflow_part("relay", name="relay", settings=settings, folder=stage.folder) as (child, _):
            give_up_at = time.monotonic() + OUTCOMES_SECONDS_MAX
            while _number(connection, "unpublished"):
                child.check()
                if time.monotonic() > give_up_at:
                    raise SideFailed("the outcomes were not published in time")
                time.sleep(SCAN_SECONDS)
        connection.execute(_SQL["settled"])
    stage.say(f"  {stage.sizes.verify_events:,} events and outcomes settled in {time.monotonic() - begun:.0f} s")


def _write_rows(connection: psycopg.Connection[Any], stage: Stage, road: Road) -> None:
    log = topic_id(admin_client({"bootstrap.servers": stage.bootstrap}), road.events)
    ends = dict.fromkeys(range(PARTITIONS), 0)
    # As a processor does at its first start: a proof wants to know whose rows they are.
    check_database(connection, deployment=DEPLOYMENT, accounts=(ACCOUNT,), mode="test")
    with connection.transaction():
        with connection.cursor().copy(_SQL["copy_markers"]) as copy:
            for page in scan(stage.bootstrap, road.events):
                for message in page:
                    copy.write_row(_marker(message, log))
                    ends[message.partition() or 0] = (message.offset() or 0) + 1
        connection.execute(_SQL["outcomes"], {"lanes": PARTITIONS})
        connection.execute(_SQL["heads"])
        for number, end in ends.items():
            place = {"cluster_id": CLUSTER, "topic_id": log, "partition": number, "topic": road.events}
            connection.execute(_PER_EVENT["begin_partition"], place)
            connection.execute(_PER_EVENT["progress"], [end, CLUSTER, log, number])


def _marker(message: Message, log: str) -> tuple[object, ...]:
    headers = cast("Headers", message.headers())  # the stub allows what only a sender gives
    said = {name: (raw or b"").decode() for name, raw in headers}
    _, _, account, mode = said["ce_source"].split(":")
    key, digest = (message.key() or b"").decode(), hashlib.sha256(message.value() or b"").digest()
    place = (log, message.partition(), message.offset())
    times = (said["ce_time"], said["onceflow_received_at"])
    return (
        account,
        mode,
        said["ce_id"],
        "processed",
        said["ce_type"].removeprefix(TYPE_PREFIX),
        key,
        *place,
        digest,
        *times,
        "bench",
    )


def _number(connection: psycopg.Connection[Any], query: str) -> int:
    row: Any = connection.execute(_BENCH[query]).fetchone()
    return int(row[0])
