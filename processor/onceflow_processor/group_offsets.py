"""The group's offsets in Kafka, written for lag tools.

Rule: nothing of ours ever reads them, so a commit that fails is counted and told, and never stands in the way.  It is
tried again with the next one: a group refuses commits while its members change, and without new records the lag that
people see would stay for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from onceflow_processor.records import Partition
from onceflow_producer.failpoint import hit
from onceflow_producer.repeat_limit import RepeatLimit

OFFSETS_COMMIT_SECONDS = 1.0
TELL_AGAIN_SECONDS = 30.0
"""Whatever the group was told is told again: a member that slept may have told it less meanwhile, or a report was lost."""

log = structlog.get_logger("onceflow.processor")


class GroupOffsets:
    """How far partitions are done, until the group has been told."""

    def __init__(self, count: Callable[[str], None]) -> None:
        """``count(kind)`` counts what went wrong, for the metrics."""
        self._count = count
        self._ours: dict[Partition, int] = {}
        self._done: dict[Partition, int] = {}
        self._told = RepeatLimit()
        self._committed_at = 0.0
        self._all_told_at = time.monotonic()

    def note(self, next_offsets: Mapping[Partition, int]) -> None:
        """Note the offsets after what is done."""
        self._ours.update(next_offsets)
        self._done.update(next_offsets)

    def forget(self, partition: Partition) -> None:
        """Forget a partition that is no longer ours."""
        self._ours.pop(partition, None)
        self._done.pop(partition, None)

    def forget_all(self) -> None:
        """Forget everything: the group is left."""
        self._ours.clear()
        self._done.clear()

    def commit(self, consumer: Consumer, *, at_once: bool = False) -> None:
        """Tell the group, at most every ``OFFSETS_COMMIT_SECONDS`` unless ``at_once``, and without waiting."""
        now = time.monotonic()
        if now - self._all_told_at >= TELL_AGAIN_SECONDS:
            self._done = dict(self._ours)
            self._all_told_at = now
        if not self._done or (not at_once and now - self._committed_at < OFFSETS_COMMIT_SECONDS):
            return
        places = [TopicPartition(partition.topic, partition.number, at) for partition, at in self._done.items()]
        self._done.clear()
        self._committed_at = now
        hit("processor.before_group_commit")
        try:
            consumer.commit(offsets=places, asynchronous=True)
        except KafkaException as error:
            self._failed(error.args[0], places)

    def on_commit(self, error: KafkaError | None, places: Sequence[TopicPartition]) -> None:
        """Take the client's report about a commit."""
        if error is not None:
            self._failed(error, places)

    def _failed(self, error: KafkaError, places: Sequence[TopicPartition]) -> None:
        for place in places:
            partition = Partition(place.topic, place.partition)
            if partition in self._ours:
                self._done.setdefault(partition, place.offset)
        self._count("commit_failed")
        left_out = self._told.admit((error.name(),), now=time.monotonic())
        if left_out is not None:
            log.info("group_commit_failed", code=error.name(), detail=error.str(), suppressed=left_out)
