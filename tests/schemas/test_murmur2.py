"""The hash, against a second one written byte by byte, and the lane against librdkafka's own partitioner."""

from __future__ import annotations

from confluent_kafka import KafkaError, Message, Producer
from hypothesis import given
from hypothesis import strategies as st

from onceflow_schemas.identity import lane_of
from onceflow_schemas.murmur2 import murmur2
from tests.schemas import independent
from tests.schemas.stripe_bodies import CASES

FLUSH_SECONDS = 30.0
KEYS = ["k", "in_1", "cus_NffrFeUfNV2Hib", "Straße", "😀", "acct_1A/pi_3MtwBwLkdIwHu7ix28a3tqPa", "x" * 1024]


@CASES
@given(st.binary(max_size=70))
def test_it_agrees_with_the_one_written_byte_by_byte(data: bytes) -> None:
    assert murmur2(data) == independent.murmur2(data)


def test_a_lane_is_the_partition_that_a_producer_chooses() -> None:
    """With ``murmur2_random``, the partitioner of the bridge; Java's default producer agrees with it."""
    settings = {
        "bootstrap.servers": "mock",
        "test.mock.num.brokers": 1,
        "partitioner": "murmur2_random",
        "allow.auto.create.topics": True,
        "topic.metadata.refresh.interval.ms": 100,
    }
    chosen: dict[str, int | None] = {}

    def note(error: KafkaError | None, message: Message) -> None:
        assert error is None
        key = message.key()
        assert key is not None
        chosen[key.decode()] = message.partition()

    producer = Producer(settings)
    for key in KEYS:
        producer.produce("lanes", key=key.encode(), value=b"", on_delivery=note)
    assert producer.flush(FLUSH_SECONDS) == 0
    count = len(producer.list_topics("lanes", timeout=FLUSH_SECONDS).topics["lanes"].partitions)
    assert chosen == {key: lane_of(key, count) for key in KEYS}
    assert len(set(chosen.values())) > 1
