"""What is read from a partition that holds markers, aborted and unfinished records, refills and strangers."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from onceflow_processor.relay.cursor import Extent, Foreign, Mark, OutcomeRecord, StrangeRecord, Unknown
from onceflow_processor.relay.kafka_clients import Refusals
from onceflow_processor.relay.topic_tail import TopicTail
from onceflow_schemas.failure import Misconfigured, Unavailable
from tests.conftest import create_topic
from tests.relay.lanes import wait_for


class Place:
    """A topic of two partitions, a transactional producer, and looks at it."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.topic = create_topic(bootstrap, prefix="outcomes", partitions=2)
        self.group = f"group.{self.topic}"
        self.producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": self.topic})
        self.producer.init_transactions(20)

    def send(self, lane: int, seqs: list[int], *, end: str = "commit", refill: bool = False) -> None:
        """One transaction with records of these sequences; 0 makes a record that is no outcome."""
        self.producer.begin_transaction()
        for seq in seqs:
            headers = [
                ("ce_id", str(uuid.UUID(int=seq))),
                ("onceflow_lane", str(lane)),
                ("onceflow_sequence", str(seq)),
            ]
            marked = [*headers, ("onceflow_refill", "1")] if refill else headers
            self.producer.produce(self.topic, b"v", b"k", lane, headers=marked if seq else None)  # type: ignore[arg-type]
        self.producer.flush(20)
        if end == "commit":
            self.producer.commit_transaction(20)
        elif end == "abort":
            self.producer.abort_transaction(20)
        if end != "leave open":
            # The answer comes before the marker: wait until the transaction is seen to be over.
            wait_for(lambda: self.settled(lane), "the transaction is over")

    def settled(self, lane: int) -> bool:
        with self.look() as tail:
            extent = tail.extents([lane])[lane]
            return extent.stable_end == extent.end

    def look(self, *, deadline_seconds: float = 20.0) -> TopicTail:
        return TopicTail(
            {"bootstrap.servers": self.bootstrap, "linger.ms": 1},
            topic=self.topic,
            group=self.group,
            deadline_seconds=deadline_seconds,
            refusals=Refusals(),
        )


@pytest.fixture
def place(kafka_bootstrap: str) -> Iterator[Place]:
    made = Place(kafka_bootstrap)
    yield made
    made.producer.purge()


class MovingCoordinator:
    """A reader whose first answers are those of a broker that has only just started."""

    def __init__(self, reader: Consumer, *, errors: list[KafkaError]) -> None:
        self.reader, self.errors = reader, errors

    def committed(self, asked: list[TopicPartition], *, timeout: float) -> list[TopicPartition]:
        if self.errors:
            raise KafkaException(self.errors.pop())
        return self.reader.committed(asked, timeout=timeout)

    def poll(self, timeout: float) -> Message | None:
        return self.reader.poll(timeout)

    def close(self) -> None:
        self.reader.close()


def record(offset: int, seq: int) -> OutcomeRecord:
    return OutcomeRecord(offset, seq, uuid.UUID(int=seq))


def test_the_last_record_is_found_behind_markers_and_aborted_records(place: Place) -> None:
    place.send(0, [1, 2, 3])
    for _ in range(3):
        place.send(0, list(range(4, 24)), end="abort")
    with place.look() as tail:
        extent = tail.extents([0])[0]
        assert extent == Extent(0, 67, 67)
        assert tail.last_record(0, extent) == record(2, 3)
        assert list(tail.records_around(0, 1, extent=extent)) == [record(0, 1), record(1, 2), record(2, 3)]


def test_an_empty_partition_and_one_with_aborted_records_only(place: Place) -> None:
    place.send(1, [1, 2], end="abort")
    with place.look() as tail:
        extents = tail.extents([0, 1])
        assert extents == {0: Extent(0, 0, 0), 1: Extent(0, 3, 3)}
        assert tail.last_record(0, extents[0]) is None
        assert tail.last_record(1, extents[1]) is None
        assert list(tail.records_around(1, 0, extent=extents[1])) == []


def test_a_refill_is_not_the_last_record_but_a_stranger_is(place: Place) -> None:
    place.send(0, [1, 2])
    place.send(0, [1], refill=True)
    place.send(1, [1])
    place.send(1, [0])
    with place.look() as tail:
        extents = tail.extents([0, 1])
        assert tail.last_record(0, extents[0]) == record(1, 2)
        assert tail.last_record(1, extents[1]) == StrangeRecord(2)


def test_an_unfinished_transaction_is_seen_only_where_it_is_asked_for(place: Place) -> None:
    place.send(0, [1, 2])
    place.send(0, [3, 4], end="leave open")
    with place.look() as tail:
        extent = tail.extents([0])[0]
        assert extent == Extent(0, 3, 5)
        assert tail.last_record(0, extent) == record(1, 2)
        assert tail.open_record(0, extent) == record(4, 4)
        assert [one.offset for one in tail.records_around(0, 0, extent=extent)] == [0, 1]


def test_reading_begins_far_enough_back_and_goes_over_the_logs_start(place: Place) -> None:
    for first in range(1, 401, 40):
        place.send(0, list(range(first, first + 40)))
    with place.look() as tail:
        extent = tail.extents([0])[0]
        found = [one.seq for one in tail.records_around(0, 390, extent=extent) if isinstance(one, OutcomeRecord)]
        assert found[-1] == 400
        assert found[0] <= 391
        assert found == list(range(found[0], 401))
        everything = [one.seq for one in tail.records_around(0, 0, extent=extent) if isinstance(one, OutcomeRecord)]
        assert everything == list(range(1, 401))


def test_cursors(place: Place) -> None:
    consumer = Consumer({"bootstrap.servers": place.bootstrap, "group.id": place.group})
    ours = f"7 {uuid.UUID(int=7)}"
    consumer.commit(offsets=[TopicPartition(place.topic, 0, 9, metadata=ours)], asynchronous=False)
    with place.look() as tail:
        assert tail.cursors([0, 1]) == {0: Mark(9, 7, uuid.UUID(int=7)), 1: Unknown()}
        consumer.commit(offsets=[TopicPartition(place.topic, 0, 3)], asynchronous=False)
        assert tail.cursors([0]) == {0: Foreign(3, "")}
    consumer.close()


def test_an_undecided_cursor_is_waited_for_and_not_guessed(place: Place) -> None:
    consumer = Consumer({"bootstrap.servers": place.bootstrap, "group.id": place.group})
    place.send(0, [1], end="leave open")
    place.producer.send_offsets_to_transaction(
        [TopicPartition(place.topic, 0, 1)], consumer.consumer_group_metadata(), 20
    )
    consumer.close()
    with place.look(deadline_seconds=1.0) as tail, pytest.raises(Unavailable):
        tail.cursors([0])


def test_a_topic_that_does_not_exist_and_a_broker_that_is_away(place: Place) -> None:
    with place.look() as tail:
        facts = tail.facts()
        assert facts.partitions == 2
        assert len(facts.topic_id) == 22
    place.topic = "no.such.topic"
    with place.look() as tail, pytest.raises(Misconfigured, match="topic_missing"):
        tail.facts()
    place.bootstrap = "127.0.0.1:1"
    with place.look(deadline_seconds=1.0) as tail, pytest.raises(Unavailable):
        tail.facts()


def test_a_coordinator_that_is_only_just_loading_is_waited_for(place: Place) -> None:
    errors = [KafkaError(code, retriable=True) for code in (KafkaError.NOT_COORDINATOR, KafkaError._TIMED_OUT)]
    with place.look() as tail:
        real = tail._reader("read_committed")
        tail._readers["read_committed"] = MovingCoordinator(real, errors=errors)  # type: ignore[assignment]
        assert tail.cursors([0]) == {0: Unknown()}
    assert not errors


def test_an_error_that_no_waiting_heals_is_told_at_once(place: Place) -> None:
    errors = [KafkaError(KafkaError.UNKNOWN_MEMBER_ID)]
    with place.look() as tail:
        real = tail._reader("read_committed")
        tail._readers["read_committed"] = MovingCoordinator(real, errors=errors)  # type: ignore[assignment]
        with pytest.raises(Unavailable, match="UNKNOWN_MEMBER_ID"):
            tail.cursors([0])


def test_the_admin_client_ends_with_the_look_and_is_not_left_to_the_garbage_collector(place: Place) -> None:
    """Collected inside its own callback thread, it would end the process."""
    place.topic = "no.such.topic"
    gc.collect()
    gc.disable()
    try:
        before = admin_clients()
        with place.look() as tail, pytest.raises(Misconfigured) as raised:
            tail.facts()
        assert raised.traceback
        assert admin_clients() == before
    finally:
        gc.enable()


def admin_clients() -> int:
    return sum(isinstance(one, AdminClient) for one in gc.get_objects())
