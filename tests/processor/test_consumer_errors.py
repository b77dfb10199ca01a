"""What goes wrong inside a callback of the Kafka client comes out as an exception, and ends no thread in silence."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from onceflow_processor.consumer_errors import whole
from tests.processor.processor_process import wait_until


def test_what_the_client_raises_inside_a_callback_can_be_caught_outside(kafka_bootstrap: str, topic: str) -> None:
    """An assignor that hands out everything at once refuses the assignment of single partitions."""
    consumer = Consumer(
        {"bootstrap.servers": kafka_bootstrap, "group.id": topic, "partition.assignment.strategy": "range"}
    )

    def assign(given_to: Consumer, places: list[TopicPartition]) -> None:
        given_to.incremental_assign(places)

    consumer.subscribe([topic], on_assign=whole(assign))
    try:
        with pytest.raises(KafkaException, match="EAGER"):
            wait_until(lambda: consumer.poll(0.1), "the group hands out its partitions")
    finally:
        consumer.close()
