"""What the log of a partition looks like: bounds, topic id, and where a first start begins.

It belongs to the consume thread, because it asks the consumer; ids of topics come from an admin client.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from onceflow_processor.kafka_client import kafka_failure, topic_id
from onceflow_processor.position import LogBounds
from onceflow_processor.records import Partition

ASK_SECONDS_MAX = 3.0


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a log."""

    topic_id: str
    bounds: LogBounds
    start_offset: int


class LogView:
    """Looks at logs; ``start`` is None for "earliest", else the time from which a first start reads."""

    def __init__(self, admin: AdminClient, *, start: datetime | None) -> None:
        self._admin = admin
        self._start = start

    def drain(self) -> None:
        """Take what the admin client has to say: it keeps what nobody takes, for as long as the broker is away."""
        self._admin.poll(0)

    def look(self, consumer: Consumer, partition: Partition) -> Look:
        """Ask the broker, bounded in time.

        Raises:
            Failure: the broker did not answer or refused.
        """
        place = TopicPartition(partition.topic, partition.number)
        try:
            watermarks = consumer.get_watermark_offsets(place, timeout=ASK_SECONDS_MAX, cached=False)
            if watermarks is None:
                raise kafka_failure(TimeoutError("the offsets of a partition"))
            bounds = LogBounds(*watermarks)
            start = bounds.low if self._start is None else self._offset_at(consumer, partition, self._start, bounds)
        except KafkaException as error:
            raise kafka_failure(error) from error
        return Look(topic_id(self._admin, partition.topic), bounds, start)

    @staticmethod
    def _offset_at(consumer: Consumer, partition: Partition, start: datetime, bounds: LogBounds) -> int:
        asked = TopicPartition(partition.topic, partition.number, int(start.timestamp() * 1000))
        [found] = consumer.offsets_for_times([asked], timeout=ASK_SECONDS_MAX)
        # No record at or after that time: begin at the end.
        return found.offset if found.offset >= 0 else bounds.high
