"""Which of the operator's properties reach which client, and what its errors become."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from onceflow_processor.relay.kafka_clients import Refusals, broker_failures, open_admin, open_producer, open_reader
from onceflow_schemas.failure import Misconfigured, Unavailable

KAFKA = {
    "bootstrap.servers": "127.0.0.1:1",
    "linger.ms": 3,
    "compression.type": "zstd",
    "session.timeout.ms": 9_000,
    "group.protocol": "consumer",
    "client.id": "mine",
    "log_level": 0,
}


def test_clients_that_look_take_the_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    """`session.timeout.ms` beside `group.protocol=consumer` is refused by the client when it is constructed."""
    with caplog.at_level(logging.WARNING):
        reader = open_reader(KAFKA, group="g", isolation="read_committed", refusals=Refusals())
        admin = open_admin(KAFKA, refusals=Refusals())
        reader.close()
        del admin
    assert [record.message for record in caplog.records if "CONFWARN" in record.message] == []


@pytest.mark.parametrize("limit", [None, 250, 20_000, 5_000_000])
def test_the_producer_takes_any_limit(limit: int | None) -> None:
    kafka: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "linger.ms": 3, "acks": "1", "log_level": 0}
    producer = open_producer(kafka, transactional_id="t", record_bytes_max=limit, refusals=Refusals())
    producer.purge()


def test_refused_credentials_are_remembered() -> None:
    refusals = Refusals()
    refusals.note(KafkaError(KafkaError._TRANSPORT))
    assert refusals.last is None
    refusals.note(KafkaError(KafkaError._AUTHENTICATION))
    assert refusals.last == "_AUTHENTICATION"


def test_errors_of_the_client_mean_away() -> None:
    with pytest.raises(Unavailable, match="_TRANSPORT"), broker_failures():
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))
    with pytest.raises(Unavailable), broker_failures():
        raise TimeoutError
    with pytest.raises(Unavailable), broker_failures():
        raise chained(KafkaException(KafkaError(KafkaError._FENCED)))
    with pytest.raises(SystemError), broker_failures():
        raise chained(ValueError())
    with pytest.raises(ZeroDivisionError), broker_failures():
        _ = 1 // 0


def chained(cause: Exception) -> SystemError:
    """What the interpreter makes of a fatal error raised between two callbacks."""
    inner, outer = SystemError(), SystemError()
    inner.__cause__, outer.__cause__ = cause, inner
    return outer


def test_what_was_being_done_is_said() -> None:
    refused = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    told = pytest.raises(Misconfigured, match="reading topic outcomes: TOPIC_AUTHORIZATION_FAILED")
    with told, broker_failures("reading topic outcomes"):
        raise refused
