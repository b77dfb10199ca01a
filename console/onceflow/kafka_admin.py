"""An AdminClient that says why it cannot reach or may not use the cluster.

Rule: a wrong password or certificate is told as such.  librdkafka raises nothing for them: calls only time out,
and the reason comes through the error callback.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from onceflow.redaction import redacted
from onceflow_producer.kafka_errors import CREDENTIAL_ERRORS, ClientErrors
from onceflow_schemas.failure import Failure, Misconfigured, Unavailable

METADATA_TIMEOUT_SECONDS = 10.0

_REFUSALS = CREDENTIAL_ERRORS | {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.POLICY_VIOLATION,
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_REPLICATION_FACTOR,
}
_silent = logging.getLogger("onceflow.kafka_admin")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


class KafkaAdmin:
    """A connection for one command.

    Args:
        kafka: librdkafka properties, ``bootstrap.servers`` among them.
    """

    def __init__(self, kafka: Mapping[str, object]) -> None:
        self._errors = ClientErrors()
        properties: dict[str, Any] = {"client.id": "onceflow-admin", **kafka, "error_cb": self._errors.note}
        try:
            self.client = AdminClient(properties, logger=_silent)
        except (KafkaException, TypeError, ValueError) as error:
            raise Misconfigured("settings_invalid", f"the [kafka] settings are refused: {_said(error)}") from None

    def brokers(self) -> int:
        """Return how many brokers the cluster has.

        Raises:
            Unavailable: ``broker_unavailable``.
            Misconfigured: ``broker_refused``: credentials, certificate or rights.
        """
        try:
            return len(self.client.list_topics(timeout=METADATA_TIMEOUT_SECONDS).brokers)
        except KafkaException as error:
            self.client.poll(0)
            raise failure_of(self._errors.reason(error)) from None


def failure_of(error: BaseException, *, about: str = "") -> Failure:
    """Return the failure that an error of the client means; ``about`` names what was asked for."""
    subject = f" ({about})" if about else ""
    inner = error.args[0] if error.args else None
    if isinstance(inner, KafkaError) and inner.code() in _REFUSALS:
        return Misconfigured("broker_refused", f"Kafka refused{subject}: {_said(error)}")
    return Unavailable(
        "broker_unavailable", f"Kafka does not answer{subject}: {_said(error)}", "Check bootstrap.servers."
    )


def _said(error: BaseException) -> str:
    first = error.args[0] if error.args else error
    return redacted(first.str() if isinstance(first, KafkaError) else str(first))
