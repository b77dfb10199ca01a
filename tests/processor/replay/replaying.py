"""``onceflow replay`` as an operator calls it, on the topics and the database of a test."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.processor.processor_process import Road

REPLAY_SECONDS_MAX = 600
ASK_SECONDS_MAX = 60


def replayed(road: Road, *arguments: str, topic: bool = True, status: int = 0, **settings: str) -> dict[str, Any]:
    """Run it to its end; return what it said."""
    done = ran(road, "--json", *arguments, topic=topic, **settings)
    assert done.returncode == status, (done.stdout, done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def ran(road: Road, *arguments: str, topic: bool = True, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    chosen = ("--topic", road.events) if topic else ()
    return subprocess.run(
        [sys.executable, "-m", "onceflow", "replay", *chosen, *arguments],
        env={**road._environment, **settings},
        capture_output=True,
        text=True,
        timeout=REPLAY_SECONDS_MAX,
        check=False,
    )


def error_of(answer: dict[str, Any]) -> tuple[str, int]:
    """Return the code and the number of faults."""
    error = answer["error"]
    return error["code"], len(error.get("faults", [error["message"]]))


def untouched(road: Road) -> tuple[Any, ...]:
    """Everything that a replay must leave as it is: progress rows, the live group's offsets and members."""
    group = f"onceflow.{road.deployment}.processor"
    # Not by an admin client: librdkafka's answer to ListConsumerGroupOffsets may take the process with it (rd_kafka_cgrp_op).
    reader = Consumer({"bootstrap.servers": road.bootstrap, "group.id": group})
    try:
        places = [TopicPartition(road.events, number) for number in range(road.partitions)]
        offsets = [(one.partition, one.offset) for one in reader.committed(places, timeout=ASK_SECONDS_MAX)]
    finally:
        reader.close()
    admin = AdminClient({"bootstrap.servers": road.bootstrap})
    groups = sorted(one.group_id for one in admin.list_consumer_groups(request_timeout=ASK_SECONDS_MAX).result().valid)
    rows = road.rows(
        "SELECT topic_id, partition, next_offset, epoch, owner, fingerprint FROM onceflow.progress ORDER BY 1, 2"
    )
    return offsets, [one for one in groups if road.deployment in one], rows
