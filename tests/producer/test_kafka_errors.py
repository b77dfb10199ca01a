"""The client's errors as refusals."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from onceflow_producer.kafka_errors import ClientErrors, refusal_code
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


TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
REFUSED = KafkaError(KafkaError._AUTHENTICATION, "wrong password")
AWAY = KafkaError(KafkaError._TRANSPORT, "connection refused")
ALL_DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ([], "no answer"),
        ([ALL_DOWN], "no answer"),
        ([AWAY, ALL_DOWN], "connection refused"),
        ([AWAY, REFUSED, AWAY], "wrong password"),
    ],
)
def test_the_reason_behind_a_call_that_timed_out(told: list[KafkaError], reason: str) -> None:
    errors = ClientErrors()
    for error in told:
        errors.note(error)
    assert errors.reason(TIMED_OUT).args[0].str() == reason


def test_an_answer_is_its_own_reason() -> None:
    errors = ClientErrors()
    errors.note(AWAY)
    answer = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    assert errors.reason(answer) is answer
    late = errors.reason(TimeoutError())
    assert late.args[0].str() == "connection refused"
