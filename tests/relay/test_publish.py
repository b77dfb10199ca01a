"""One Kafka transaction: all of it, or none, and who is at fault."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer

from onceflow_processor.relay.cursor import Mark
from onceflow_processor.relay.encoding import Prepared
from onceflow_processor.relay.kafka_clients import Refusals, open_producer
from onceflow_processor.relay.publish import Failed, Published, Publisher, Refusal
from onceflow_schemas.failure import LeaseLost, Unavailable, Uncertain
from tests.relay.lanes import Lanes, sequence


def prepared(seq: int, *, lane: int = 0, value: bytes = b"{}") -> Prepared:
    headers: list[tuple[str, str | bytes | None]] = [
        ("onceflow_sequence", str(seq).encode()),
        ("onceflow_lane", str(lane).encode()),
    ]
    return Prepared(seq, str(uuid.UUID(int=seq)).encode(), b"k", value, headers)


@contextmanager
def publisher(
    lanes: Lanes, *, record_bytes_max: int | None = 1_000_000, keep_lease: Callable[[], None] = lambda: None
) -> Iterator[Publisher]:
    kafka = {"bootstrap.servers": lanes.bootstrap}
    consumer = Consumer({**kafka, "group.id": lanes.group})
    metadata = consumer.consumer_group_metadata()
    consumer.close()
    producer = open_producer(
        kafka, transactional_id=lanes.transactional_id, record_bytes_max=record_bytes_max, refusals=Refusals()
    )
    made = Publisher(
        producer, topic=lanes.topic, group_metadata=metadata, keep_lease=keep_lease, lease_seconds=lambda: 30.0
    )
    try:
        made.start()
        yield made
    finally:
        made.close()


def test_records_and_cursors_come_together_with_the_real_next_offset(lanes: Lanes) -> None:
    with publisher(lanes) as relay:
        first = relay.publish({0: [prepared(1), prepared(2)], 1: [prepared(1, lane=1)]})
        assert first == Published({0: Mark(2, 2, uuid.UUID(int=2)), 1: Mark(1, 1, uuid.UUID(int=1))}, {})
        second = relay.publish({0: [prepared(3)]})
        assert second == Published({0: Mark(4, 3, uuid.UUID(int=3))}, {}), "the marker of the first took offset 2"
    assert lanes.cursor(0) == (4, f"3 {uuid.UUID(int=3)}")
    assert lanes.cursor(1) == (1, f"1 {uuid.UUID(int=1)}")
    assert lanes.sequences() == {0: [1, 2, 3], 1: [1], 2: []}


def test_cursors_can_be_written_again_without_records(lanes: Lanes) -> None:
    with publisher(lanes) as relay:
        relay.publish({}, recommit={2: Mark(8, 5, uuid.UUID(int=5))})
    assert lanes.cursor(2) == (8, f"5 {uuid.UUID(int=5)}")
    assert lanes.sequences() == {0: [], 1: [], 2: []}


def test_a_record_that_the_client_refuses_ends_only_its_lanes_batch(lanes: Lanes) -> None:
    big = prepared(2, value=b"x" * 5_000)
    with publisher(lanes, record_bytes_max=4_000) as relay:
        answer = relay.publish({0: [prepared(1), big, prepared(3)], 1: [prepared(1, lane=1)]})
        assert isinstance(answer, Published)
        assert answer.refused == {0: Refusal(2, "MSG_SIZE_TOO_LARGE")}
        assert {lane: mark.seq for lane, mark in answer.cursors.items()} == {0: 1, 1: 1}
        alone = relay.publish({0: [big]})
        assert alone == Published({}, {0: Refusal(2, "MSG_SIZE_TOO_LARGE")})
        assert isinstance(relay.publish({0: [prepared(2)]}), Published), "the producer is still good"
    assert lanes.sequences() == {0: [1, 2], 1: [1], 2: []}


def test_a_record_that_the_broker_refuses_fails_everything_and_names_the_lane(lanes: Lanes) -> None:
    big = prepared(1, value=b"x" * 1_500_000)
    with publisher(lanes, record_bytes_max=None) as relay:
        answer = relay.publish({0: [big, prepared(2)], 1: [prepared(1, lane=1)]})
        assert isinstance(answer, Failed)
        assert answer.refused == {0: Refusal(None, "MSG_SIZE_TOO_LARGE")}
    with publisher(lanes) as relay:
        relay.publish({1: [prepared(1, lane=1)]})
    assert lanes.sequences() == {0: [], 1: [1], 2: []}
    assert lanes.cursor(0)[0] == -1001


def test_a_successor_fences_the_former_one(lanes: Lanes) -> None:
    with publisher(lanes) as former:
        former.publish({0: [prepared(1)]})
        with publisher(lanes) as successor:
            with pytest.raises((Unavailable, Uncertain)):
                former.publish({0: [prepared(2)]})
            successor.publish({0: [prepared(2)]})
    assert lanes.sequences() == {0: [1, 2], 1: [], 2: []}


def test_without_the_lease_nothing_is_committed(lanes: Lanes) -> None:
    calls = 0

    def keep_lease() -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise LeaseLost("fenced", "lost")

    with publisher(lanes, keep_lease=keep_lease) as relay, pytest.raises(LeaseLost):
        relay.publish({0: [prepared(1)]})
    with publisher(lanes):
        pass  # A new relay aborts what the former one left open.
    assert lanes.sequences() == {0: [], 1: [], 2: []}


def test_a_log_that_begins_anew_is_not_committed_into(lanes: Lanes) -> None:
    """The topic was made again, or its tail lost: an offset is given out that lies before what was written."""
    with publisher(lanes) as relay:
        relay.publish({0: [prepared(1)]}, recommit={1: Mark(8, 5, uuid.UUID(int=5))})
        with pytest.raises(Unavailable, match="lane 1 got offset 0"):
            relay.publish({0: [prepared(2)], 1: [prepared(6, lane=1)]})
    with publisher(lanes) as successor:
        successor.publish({0: [prepared(2)]})
    assert lanes.sequences() == {0: [1, 2], 1: [], 2: []}
    assert lanes.cursor(1) == (8, f"5 {uuid.UUID(int=5)}")


def test_a_topic_that_has_gone_is_no_records_fault(lanes: Lanes) -> None:
    with publisher(lanes) as relay, pytest.raises(Unavailable):
        relay.publish({7: [prepared(1)]})


def test_more_records_than_the_queue_takes(lanes: Lanes) -> None:
    batch = [prepared(seq, value=b"x" * 900) for seq in range(1, 3_001)]
    kafka = {"bootstrap.servers": lanes.bootstrap, "queue.buffering.max.messages": 500}
    consumer = Consumer({"bootstrap.servers": lanes.bootstrap, "group.id": lanes.group})
    producer = open_producer(kafka, transactional_id=lanes.transactional_id, record_bytes_max=None, refusals=Refusals())
    relay = Publisher(
        producer,
        topic=lanes.topic,
        group_metadata=consumer.consumer_group_metadata(),
        keep_lease=lambda: None,
        lease_seconds=lambda: 30.0,
    )
    relay.start()
    relay.publish({0: batch})
    relay.close()
    consumer.close()
    assert [sequence(one) for one in lanes.records()[0]] == list(range(1, 3_001))
