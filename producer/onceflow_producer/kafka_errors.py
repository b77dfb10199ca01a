"""What the errors of the Kafka client mean to the bridge.

Rule: an error that is not listed means "the broker is not available", and never that the sender did wrong.
Source: librdkafka ``rdkafka.h``; local errors have a leading underscore in their Python names too.
"""
# ruff: noqa: SLF001 - KafkaError's names of local errors begin with an underscore; they are its public constants

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException

FATAL: Final = KafkaError._FATAL
GIVEN_UP: Final = KafkaError._MSG_TIMED_OUT
"""A record that was not confirmed in its time."""
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

BROKERS_DOWN: Final = KafkaError._ALL_BROKERS_DOWN
"""Comes after the reason, and says nothing of it."""

NOT_ANSWERED: Final = frozenset(
    {KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError._TRANSPORT, BROKERS_DOWN}
)
"""What a call ends with that got no answer; why it got none comes through the error callback."""

_CODE_OF: Final = {
    GIVEN_UP: "broker_timeout",
    KafkaError._TIMED_OUT: "broker_timeout",
    KafkaError.REQUEST_TIMED_OUT: "broker_timeout",
    KafkaError._UNKNOWN_TOPIC: "topic_missing",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "topic_missing",
    **dict.fromkeys(CREDENTIAL_ERRORS | WRITE_ERRORS, "broker_refused"),
}


def refusal_code(error_code: int) -> str:
    """Return the refusal's code for a record that was not confirmed, for any reason but its size."""
    return _CODE_OF.get(error_code, "broker_unavailable")


class ClientErrors:
    """What a client said through its error callback: the reason behind calls that only time out.

    A wrong password or an address where nobody listens raises nothing; give ``note`` to the client as ``error_cb``.
    """

    def __init__(self) -> None:
        self._refused: KafkaError | None = None
        self._last: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """Take one error event; called in the thread that polls the client."""
        if error.code() in REFUSALS:
            self._refused = error
        elif error.code() != BROKERS_DOWN:
            self._last = error

    def reason(self, error: BaseException) -> BaseException:
        """Return the reason behind a call that failed so: refused credentials, else what was said last, else itself.

        Args:
            error: what the call raised; only a call that was not answered in time has another reason than itself.
        """
        inner = error.args[0] if isinstance(error, KafkaException) and error.args else None
        if isinstance(inner, KafkaError) and inner.code() not in NOT_ANSWERED:
            return error
        told = self._refused or self._last
        return error if told is None else KafkaException(told)
