"""What the errors of the Kafka client mean to the bridge.

Rule: an error that is not listed means "the broker is not available", and never that the sender did wrong.
Source: librdkafka ``rdkafka.h``; local errors have a leading underscore in their Python names too.
"""
# ruff: noqa: SLF001 - KafkaError's names of local errors begin with an underscore; they are its public constants

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

FATAL: Final = KafkaError._FATAL
TOO_LARGE: Final = KafkaError.MSG_SIZE_TOO_LARGE
UNKNOWN_TOPIC: Final = KafkaError.UNKNOWN_TOPIC_OR_PART

CREDENTIAL_ERRORS: Final = frozenset(
    {KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED}
)
"""A wrong password or CA shows only as an error event of the client; records just time out."""

WRITE_ERRORS: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        KafkaError.POLICY_VIOLATION,
    }
)
"""The broker answers, but does not take our records: a missing right, a wrong clock, a topic with odd rules."""

REFUSALS: Final = CREDENTIAL_ERRORS | {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""Wrong credentials or a missing right: it does not pass by itself."""

_CODE_OF: Final = {
    KafkaError._MSG_TIMED_OUT: "broker_timeout",
    KafkaError._TIMED_OUT: "broker_timeout",
    KafkaError.REQUEST_TIMED_OUT: "broker_timeout",
    KafkaError._UNKNOWN_TOPIC: "topic_missing",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "topic_missing",
    **dict.fromkeys(CREDENTIAL_ERRORS | WRITE_ERRORS, "broker_refused"),
}


def refusal_code(error_code: int) -> str:
    """Return the refusal's code for a record that was not confirmed, for any reason but its size."""
    return _CODE_OF.get(error_code, "broker_unavailable")
