"""The client's errors as refusals."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from onceflow_producer.kafka_errors import refusal_code
from onceflow_producer.refusal import STATUS_OF


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError._MSG_TIMED_OUT, "broker_timeout"),
        (KafkaError.REQUEST_TIMED_OUT, "broker_timeout"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "broker_refused"),
        (KafkaError.INVALID_TIMESTAMP, "broker_refused"),
        (KafkaError._AUTHENTICATION, "broker_refused"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "topic_missing"),
        (KafkaError._UNKNOWN_TOPIC, "topic_missing"),
        (KafkaError._PURGE_QUEUE, "broker_unavailable"),
        (KafkaError.NOT_ENOUGH_REPLICAS, "broker_unavailable"),
        (-9_999, "broker_unavailable"),
    ],
)
def test_codes(error: int, code: str) -> None:
    assert refusal_code(error) == code
    assert STATUS_OF[code] == 503
