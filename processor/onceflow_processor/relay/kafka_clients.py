"""The librdkafka properties of the relay's clients.

Rule: what a transaction means is ours to say; how the cluster is reached is the operator's.  Clients that only look
take over the properties of the connection and nothing else, so that a setting for the producer cannot break them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from onceflow_producer.kafka_errors import CREDENTIAL_ERRORS, REFUSALS
from onceflow_schemas.failure import Failure, Misconfigured, Unavailable

TRANSACTION_TIMEOUT_MS: Final = 20_000
"""The broker ends a transaction that a dead relay left open after this long; consumers wait for it meanwhile."""
MESSAGE_TIMEOUT_MS: Final = 10_000
BATCH_BYTES_MAX: Final = 1_000_000
RECORD_BYTES_MAX: Final = 100_000_000
"""Stands in when the topic's own limit cannot be asked: then the broker alone decides what is too large."""
CLIENT_BYTES_MIN: Final = 1_000
"""The client knows no smaller limit; what a topic with a smaller one does not take, the broker refuses."""
METADATA_REFRESH_MS: Final = 5_000
QUEUE_KILOBYTES_MAX: Final = 65_536
QUEUE_RECORDS_MAX: Final = 100_000

_CONNECTION_PREFIXES: Final = (
    "allow.auto.", "api.", "bootstrap.", "broker.", "client.", "connections.", "debug", "enable.metrics.push",
    "enable.sasl.", "enable.ssl.", "error_cb", "log", "metadata.", "oauth_cb", "reconnect.", "retry.backoff", "sasl.",
    "security.", "socket.", "ssl.", "topic.metadata.",
)  # fmt: skip

_NETWORK: Final[Mapping[str, object]] = {
    # The client's defaults (10 s, 60 s, 30 s) would keep a recovered broker away from us for longer than it was gone.
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    "socket.timeout.ms": 5_000,
    "socket.connection.setup.timeout.ms": 3_000,
    "socket.keepalive.enable": True,
    "socket.nagle.disable": True,
}

_log = logging.getLogger("onceflow.relay.kafka")


class Refusals:
    """Remembers that the broker refused our credentials: it shows only as an event, everything else just times out."""

    def __init__(self) -> None:
        self.last: str | None = None

    def note(self, error: KafkaError) -> None:
        """Take one error event of a client; called in the thread that polls it."""
        if error.code() in CREDENTIAL_ERRORS:
            self.last = error.name()


def open_admin(kafka: Mapping[str, object], *, refusals: Refusals) -> AdminClient:
    """Open a client that asks about topics."""
    return AdminClient(_looking(kafka, refusals.note, "admin"))


def open_reader(
    kafka: Mapping[str, object],
    *,
    group: str,
    isolation: str,
    refusals: Refusals,
    queue_kilobytes: int = QUEUE_KILOBYTES_MAX,
) -> Consumer:
    """Open a consumer that is assigned by hand and joins no group; ``group`` is only where cursors are kept.

    Args:
        kafka: the operator's librdkafka properties.
        group: the relay's group.
        isolation: ``read_committed`` or ``read_uncommitted``.
        refusals: told of refused credentials.
        queue_kilobytes: so much is fetched ahead, of all partitions together.
    """
    return Consumer(
        {
            **_looking(kafka, refusals.note, "reader"),
            "group.id": group,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            # At the end of a log the broker would wait this long for more before it says so.
            "fetch.wait.max.ms": 10,
            "fetch.error.backoff.ms": 50,
            # After its queue was full the client would fetch nothing for a second.
            "fetch.queue.backoff.ms": 20,
            "queued.max.messages.kbytes": queue_kilobytes,
        }
    )


def open_producer(
    kafka: Mapping[str, object], *, transactional_id: str, record_bytes_max: int | None, refusals: Refusals
) -> Producer:
    """Open the transactional producer; ``refusals`` is told of refused credentials, the rest as below."""
    properties = producer_properties(kafka, transactional_id=transactional_id, record_bytes_max=record_bytes_max)
    return Producer({**properties, "error_cb": refusals.note, "logger": _log})


def producer_properties(
    kafka: Mapping[str, object], *, transactional_id: str, record_bytes_max: int | None
) -> dict[str, Any]:
    """Merge the operator's properties with those of the transactional producer.

    Args:
        kafka: the operator's librdkafka properties.
        transactional_id: fixed per outcome topic, so that a new relay fences the former one.
        record_bytes_max: the topic's limit, None when it is unknown; it holds for batches too.
    """
    bytes_max = max(record_bytes_max or RECORD_BYTES_MAX, CLIENT_BYTES_MIN)
    return {
        **_NETWORK,
        "client.id": "onceflow-relay",
        "linger.ms": 5,
        # A call that waits for a coordinator goes on only when a connection changes (librdkafka #5456); asking for
        # metadata often makes connections change.
        "topic.metadata.refresh.interval.ms": METADATA_REFRESH_MS,
        "queue.buffering.max.messages": QUEUE_RECORDS_MAX,
        "queue.buffering.max.kbytes": QUEUE_KILOBYTES_MAX,
        **kafka,
        "acks": "all",
        "enable.idempotence": True,
        "allow.auto.create.topics": False,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        "message.timeout.ms": MESSAGE_TIMEOUT_MS,
        "message.max.bytes": bytes_max,
        "batch.size": min(BATCH_BYTES_MAX, bytes_max),
    }


@contextmanager
def broker_failures(where: str = "") -> Iterator[None]:
    """Turn the Kafka client's errors into failures; ``where`` is what is being done, such as ``reading topic x``.

    Raises:
        Unavailable: nothing happened that a new look would not show.
        Misconfigured: ``broker_refused``: a right is missing, or the credentials are wrong.
    """
    try:
        yield
    except KafkaException as error:
        raise broker_failure(error.args[0], where=where) from error
    except SystemError as error:
        # The client raises a fatal error in the middle of its callbacks, and the interpreter then complains about the
        # callbacks that follow instead: the client's error is at the end of the chain.
        cause = error.__cause__
        while isinstance(cause, SystemError):
            cause = cause.__cause__
        if not isinstance(cause, KafkaException):
            raise
        raise broker_failure(cause.args[0], where=where) from error
    except TimeoutError as error:
        raise Unavailable("broker_unavailable", "Kafka did not answer in time") from error


def broker_failure(reason: object, *, where: str = "") -> Failure:
    """Return the failure that an error of the client means.

    Args:
        reason: a ``KafkaError``, or whatever else the client gave.
        where: what was being done, such as ``reading the outcome topic``.
    """
    text = f"{reason.name()}: {reason.str()}" if isinstance(reason, KafkaError) else str(reason)
    message = f"Kafka: {where}: {text}" if where else f"Kafka: {text}"
    if isinstance(reason, KafkaError) and reason.code() in REFUSALS:
        return Misconfigured("broker_refused", message)
    return Unavailable("broker_unavailable", message)


def _looking(kafka: Mapping[str, object], on_error: Callable[[KafkaError], None], role: str) -> dict[str, Any]:
    connection = {name: value for name, value in kafka.items() if name.startswith(_CONNECTION_PREFIXES)}
    return {
        **_NETWORK,
        **connection,
        "client.id": f"onceflow-relay-{role}",
        "allow.auto.create.topics": False,
        "error_cb": on_error,
        "logger": _log,
    }
