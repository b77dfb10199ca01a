"""The Kafka clients of the processor: properties, ids of cluster and topics, first offsets.

Rule: properties that would break a promise (commits by the client, a silent jump to another offset) are set here and
nowhere else; everything else is the operator's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from onceflow_producer.kafka_errors import REFUSALS, ClientErrors
from onceflow_schemas.failure import Failure, Misconfigured, Unavailable

ADMIN_SECONDS_MAX = 5.0
LOG_LEVEL = 0
"""Emergencies only (syslog's numbers)."""
GROUP_PROTOCOLS = ("auto", "consumer", "classic")

_DEFAULTS: Mapping[str, object] = {
    # The client's own defaults would keep a broker that is back away from us for longer than it was gone.
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    "socket.keepalive.enable": True,
    "socket.nagle.disable": True,
    "socket.connection.setup.timeout.ms": 3_000,
}
_CONSUMER_DEFAULTS: Mapping[str, object] = {
    **_DEFAULTS,
    "queued.max.messages.kbytes": 32_768,
    "fetch.wait.max.ms": 100,
    # How long the client fetches nothing of a partition after its queue was full.  By default a second, in which a processor
    # that only meets repeats empties the queue and then waits.
    "fetch.queue.backoff.ms": 20,
    "topic.metadata.refresh.interval.ms": 30_000,
}
_CONSUMER_FIXED: Mapping[str, object] = {
    # Positions live in PostgreSQL; a commit by the client would say "done" of what is not.
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # A position that the log does not have must be told to somebody, never jumped over.
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "enable.partition.eof": False,
    "allow.auto.create.topics": False,
}
_CLASSIC: Mapping[str, object] = {
    "group.protocol": "classic",
    "partition.assignment.strategy": "cooperative-sticky",
}
_CLASSIC_ONLY = ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy")
"""The new protocol refuses these at construction: they live at the broker."""

kafka_log = logging.getLogger("onceflow.kafka")


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What a topic is: its id (base64), its number of partitions, its ``max.message.bytes``, and whether it is compacted.

    ``keeps_ms`` is how old a record may be and surely still be there, -1 for any age; None where size or keys decide too.
    """

    topic_id: str
    partitions: int
    message_bytes_max: int
    compacted: bool = False
    keeps_ms: int | None = None


def consumer_properties(kafka: Mapping[str, object], *, group: str, protocol: str) -> dict[str, Any]:
    """Merge the operator's properties with ours; ``protocol`` is ``consumer`` or ``classic``."""
    merged = {**_CONSUMER_DEFAULTS, **kafka, **_CONSUMER_FIXED, "group.id": group}
    if protocol == "classic":
        return {**_CLASSIC, **merged}
    return {"group.protocol": "consumer", **{name: merged[name] for name in merged if name not in _CLASSIC_ONLY}}


def admin_client(kafka: Mapping[str, object], *, errors: ClientErrors | None = None) -> AdminClient:
    """Return an admin client; its owner polls it, because it keeps what it says until somebody takes it.

    It logs nothing but emergencies: the consumer, which meets the same brokers, says it all.

    Args:
        kafka: the operator's librdkafka properties.
        errors: is told what the client says, when it is polled.
    """
    properties: dict[str, Any] = {**_DEFAULTS, **kafka, "log_level": LOG_LEVEL}
    if errors is not None:
        properties["error_cb"] = errors.note
    return AdminClient(properties, logger=kafka_log)


def cluster_id(admin: AdminClient) -> str:
    """Return the cluster's id.

    Raises:
        Unavailable: the broker did not answer.
        Misconfigured: ``broker_refused``.
    """
    try:
        found = admin.describe_cluster(request_timeout=ADMIN_SECONDS_MAX).result(ADMIN_SECONDS_MAX).cluster_id
    except (KafkaException, TimeoutError) as error:
        raise kafka_failure(error) from error
    return str(found)


def describe_topics(admin: AdminClient, topics: Sequence[str]) -> dict[str, TopicFacts]:
    """Return what the topics are.

    Raises:
        Unavailable: the broker did not answer.
        Misconfigured: ``topic_missing`` or ``broker_refused``.
    """
    described = admin.describe_topics(TopicCollection(list(topics)), request_timeout=ADMIN_SECONDS_MAX)
    shapes = {topic: _answer(described[topic], topic=topic, right="DESCRIBE") for topic in topics}
    resources = {topic: ConfigResource(ResourceType.TOPIC, topic) for topic in topics}
    configs = admin.describe_configs(list(resources.values()), request_timeout=ADMIN_SECONDS_MAX)
    found: dict[str, TopicFacts] = {}
    for topic, shape in shapes.items():
        config = _answer(configs[resources[topic]], topic=topic, right="DESCRIBE_CONFIGS")
        bytes_max, compacted = int(config["max.message.bytes"].value), "compact" in config["cleanup.policy"].value
        by_age = not compacted and int(config["retention.bytes"].value) < 0
        keeps_ms = int(config["retention.ms"].value) if by_age else None
        found[topic] = TopicFacts(str(shape.topic_id), len(shape.partitions), bytes_max, compacted, keeps_ms)
    return found


class StartClient:
    """Asks the broker what a start needs to know, and says why it gets no answer.

    Args:
        kafka: the operator's librdkafka properties.
    """

    def __init__(self, kafka: Mapping[str, object]) -> None:
        self._errors = ClientErrors()
        self._admin = admin_client(kafka, errors=self._errors)

    def ask(self, topics: Sequence[str]) -> tuple[str, dict[str, TopicFacts]]:
        """Return the cluster's id and what the topics are; raises as ``describe_topics``."""
        try:
            return cluster_id(self._admin), describe_topics(self._admin, topics)
        except Failure as failure:
            self._admin.poll(0)
            cause = failure.__cause__ or failure
            reason = self._errors.reason(cause)
            if reason is cause:
                raise
            raise kafka_failure(reason) from failure


def topic_id(admin: AdminClient, topic: str) -> str:
    """Return the id of a topic; raises as ``describe_topics``."""
    described = admin.describe_topics(TopicCollection([topic]), request_timeout=ADMIN_SECONDS_MAX)
    return str(_answer(described[topic], topic=topic, right="DESCRIBE").topic_id)


def _answer(asked: Future[Any], *, topic: str, right: str) -> Any:
    try:
        return asked.result(ADMIN_SECONDS_MAX)
    except (KafkaException, TimeoutError) as error:
        raise kafka_failure(error, topic=topic, right=right) from error


def kafka_failure(error: BaseException, *, topic: str = "", right: str = "") -> Failure:
    """Return the failure that an error of the client means.

    Args:
        error: what the client raised.
        topic: what was asked about: Kafka's own words do not say which topic it refuses.
        right: the operation on it that was needed, in Kafka's name.
    """
    inner = error.args[0] if isinstance(error, KafkaException) and error.args else None
    code = inner.code() if isinstance(inner, KafkaError) else None
    said = inner.str() if isinstance(inner, KafkaError) else str(error)
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):  # noqa: SLF001
        return Misconfigured("topic_missing", said)
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED and topic:
        return Misconfigured("broker_refused", f"Kafka refused: {said}: {right} on topic {topic} is not granted")
    if code in REFUSALS:
        return Misconfigured("broker_refused", f"Kafka refused: {said}")
    return Unavailable("broker_unavailable", f"Kafka does not answer: {said}" if said else "Kafka does not answer")
