"""A confirmed transaction outlives a broker that is killed before its markers are written."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from onceflow.embedded.data_folder import DataFolder
from onceflow.embedded.former_self import CLEAN_END, ended_unclean, is_fenced, wait_fenced
from onceflow.embedded.kafka_broker import KafkaBroker
from tests.checker.waiting import wait_for
from tests.conftest import create_topic
from tests.embedded.process_state import kill_hard

PARTITIONS = 24
ACTIVE = (
    "INFO QuorumController [QuorumController id=1] Becoming the active controller at epoch 2, next write offset 46.\n"
)


def _change(word: str) -> str:
    return (
        "INFO ClusterControlManager Replayed BrokerRegistrationChangeRecord modifying the registration for broker 1:"
        f" BrokerRegistrationChangeRecord(brokerId=1, brokerEpoch=11, fenced={word}, inControlledShutdown=0)\n"
    )


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("", None),
        (_change("1"), None),
        (ACTIVE, True),
        (_change("-1") + ACTIVE, False),
        (_change("-1") + ACTIVE + _change("1"), True),
        (_change("1") + ACTIVE, True),
        (_change("1") + _change("0") + ACTIVE, True),
        (_change("-1") + _change("0") + ACTIVE, False),
        ("Replayed RegisterBrokerRecord establishing a new incarnation: (brokerId=1, fenced=false)\n" + ACTIVE, False),
        ("Replayed RegisterBrokerRecord establishing a new incarnation: (brokerId=1, fenced=true)\n" + ACTIVE, True),
    ],
)
def test_what_the_log_of_the_controller_says(said: str, *, answer: bool | None) -> None:
    assert is_fenced(said) is answer


def test_a_controller_that_ends_has_fenced_nobody() -> None:
    assert not wait_fenced(lambda: "", ends_within=lambda _seconds: True)


def test_a_controller_that_ends_before_the_fence_is_written_has_fenced_nobody() -> None:
    ends = iter([False, True])
    assert not wait_fenced(lambda: ACTIVE + _change("1"), ends_within=lambda _seconds: next(ends))


def test_only_a_folder_that_was_used_and_not_closed_ended_unclean(tmp_path: Path) -> None:
    assert not ended_unclean(tmp_path)
    metadata = tmp_path / "log" / "__cluster_metadata-0"
    metadata.mkdir(parents=True)
    (metadata / "00000000000000000000-0000000000.checkpoint").touch()
    assert not ended_unclean(tmp_path), "it was only formatted"
    (metadata / "00000000000000000000.log").touch()
    assert ended_unclean(tmp_path)
    (tmp_path / "log" / CLEAN_END).touch()
    assert not ended_unclean(tmp_path)


@pytest.mark.long
def test_a_confirmed_transaction_outlives_the_kill(folder: DataFolder, cache_dir: Path, jar_folder: Path) -> None:
    """Many partitions, so that the markers are still being written when the confirmation has come back."""
    broker = KafkaBroker(folder, cache_dir=cache_dir, progress=print)
    broker.start()
    try:
        broker.wait_ready()
        topic = create_topic(broker.bootstrap, prefix="torn", partitions=PARTITIONS)
        for kill in range(3):
            _commit_everywhere(broker.bootstrap, topic, value=b"%d" % kill)
            kill_hard(broker.pid)
            # The first thread of a process may be dead before the others are.
            wait_for(lambda: broker.poll() is not None, limit_seconds=30, what="end of the broker", step_seconds=0.02)
            assert ended_unclean(folder.kafka)
            broker.start()
            broker.wait_ready()
            assert _seen(broker.bootstrap, topic, value=b"%d" % kill) == PARTITIONS
    finally:
        broker.stop()
    assert not ended_unclean(folder.kafka)


def _producer(bootstrap: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "torn"})
    producer.init_transactions(30)
    return producer


def _commit_everywhere(bootstrap: str, topic: str, *, value: bytes) -> None:
    producer = _producer(bootstrap)
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce(topic, value, partition=partition)
    producer.flush(20)
    producer.commit_transaction(20)


def _seen(bootstrap: str, topic: str, *, value: bytes) -> int:
    """Count the partitions in which the value can be read; whoever reads first lets the next producer end the old."""
    _producer(bootstrap)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "torn",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    seen, ended = set[int | None](), set[int | None]()
    try:
        while len(ended) < PARTITIONS:
            message = consumer.poll(20)
            assert message is not None, "the partitions can be read to their ends"
            if message.error() is not None:
                ended.add(message.partition())
            elif message.value() == value:
                seen.add(message.partition())
    finally:
        consumer.close()
    return len(seen)
