"""One producer: reports, errors, retirement."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from onceflow_producer.kafka_properties import producer_properties
from onceflow_producer.producer_handle import ProducerHandle
from onceflow_schemas.failure import Misconfigured
from tests.producer.fatal_error import make_fatal
from tests.waiting import wait_until

Reports = list[tuple[KafkaError | None, Message]]


def handle_for(bootstrap: str, errors: list[KafkaError], **more: Any) -> ProducerHandle:
    kafka = {"bootstrap.servers": bootstrap, **more}
    properties = producer_properties(kafka, record_bytes_max=10_000, message_timeout_ms=5_000)
    return ProducerHandle(properties, on_error=errors.append)


def produce(handle: ProducerHandle, topic: str, reports: Reports) -> None:
    handle.produce(
        topic, key=b"k", value=b"v", headers=[], on_delivery=lambda error, message: reports.append((error, message))
    )


def polled(handle: ProducerHandle, found: list[Any]) -> list[Any]:
    handle.poll()
    return found


def test_a_property_that_the_client_refuses_is_a_fault_of_the_settings() -> None:
    for name, value in (("linger.ms", 5_001), ("no.such.property", 1), ("compression.codec", "odd")):
        with pytest.raises(Misconfigured, match=name.replace(".", r"\.")) as refused:
            handle_for("127.0.0.1:1", [], **{name: value})
        assert refused.value.code == "settings_invalid"


def test_a_report_comes_when_polled(kafka_bootstrap: str, topic: str) -> None:
    reports: Reports = []
    handle = handle_for(kafka_bootstrap, [])
    produce(handle, topic, reports)
    assert len(handle) == 1
    wait_until(lambda: polled(handle, reports), within_seconds=10, why="no report")
    assert reports[0][0] is None
    assert reports[0][1].offset() == 0
    handle.retire(purge=False, within_seconds=1).join()


def test_a_retired_producer_delivers_what_it_has(kafka_bootstrap: str, topic: str) -> None:
    reports: Reports = []
    handle = handle_for(kafka_bootstrap, [], **{"linger.ms": 300})
    for _ in range(10):
        produce(handle, topic, reports)
    handle.retire(purge=False, within_seconds=10).join()
    assert [error for error, _ in reports] == [None] * 10


def test_a_purged_producer_answers_at_once(kafka_bootstrap: str, topic: str) -> None:
    reports: Reports = []
    handle = handle_for(kafka_bootstrap, [], **{"linger.ms": 4_900})
    produce(handle, topic, reports)
    handle.retire(purge=True, within_seconds=10).join()
    assert [error.code() for error, _ in reports if error] == [KafkaError._PURGE_QUEUE]


def test_what_cannot_be_delivered_in_time_is_given_up_with_a_report() -> None:
    reports: Reports = []
    handle = handle_for("127.0.0.1:1", [])
    produce(handle, "x", reports)
    handle.retire(purge=False, within_seconds=0.2).join()
    assert len(reports) == 1
    assert reports[0][0] is not None


def test_a_fatal_error_is_told_and_does_not_rise(kafka_bootstrap: str, topic: str) -> None:
    errors: list[KafkaError] = []
    handle = handle_for(kafka_bootstrap, errors)
    make_fatal(handle._producer)
    wait_until(lambda: polled(handle, errors), within_seconds=5, why="no error")
    assert errors[0].fatal()
    with pytest.raises(KafkaException):
        produce(handle, topic, [])
    handle.retire(purge=True, within_seconds=1).join()


def test_partitions_of_a_topic_and_of_none(kafka_bootstrap: str, topic: str) -> None:
    handle = handle_for(kafka_bootstrap, [])
    assert handle.partition_count(topic, timeout_seconds=5) == 6
    assert handle.partition_count("no.such.topic", timeout_seconds=5) == 0
    handle.retire(purge=True, within_seconds=1).join()


def test_a_broker_that_is_away_is_an_exception() -> None:
    handle = handle_for("127.0.0.1:1", [])
    with pytest.raises(KafkaException):
        handle.partition_count("x", timeout_seconds=0.2)
    handle.retire(purge=True, within_seconds=1).join()
