"""The Kafka clients of the processor: properties, ids of cluster and topics, first offsets.

Rule: properties that would break a promise (commits by the client, a silent jump to another offset) are set here and
nowhere else; everything else is the operator's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from onceflow_producer.kafka_errors import REFUSALS
from onceflow_schemas.failure import Failure, Misconfigured, Unavailable

ADMIN_SECONDS_MAX = 5.0
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


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What a topic is: its id (base64), its number of partitions, its ``max.message.bytes``."""

    topic_id: str
    partitions: int
    message_bytes_max: int


def consumer_properties(kafka: Mapping[str, object], *, group: str, protocol: str) -> dict[str, Any]:
    """Merge the operator's properties with ours; ``protocol`` is ``consumer`` or ``classic``."""
    merged = {**_CONSUMER_DEFAULTS, **kafka, **_CONSUMER_FIXED, "group.id": group}
    if protocol == "classic":
        return {**_CLASSIC, **merged}
    return {"group.protocol": "consumer", **{name: merged[name] for name in merged if name not in _CLASSIC_ONLY}}


def _ignore(_error: KafkaError) -> None:
    """For callers whose calls say enough by themselves."""


def admin_client(kafka: Mapping[str, object], *, on_error: Callable[[KafkaError], None] = _ignore) -> AdminClient:
    """Return an admin client; it logs nothing and knows nothing but the connection properties.

    Args:
        kafka: librdkafka properties.
        on_error: told what the client says beside its calls, which only time out when the credentials are wrong.
    """
    properties: dict[str, Any] = {**_DEFAULTS, **kafka, "error_cb": on_error}
    return AdminClient(properties)


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
    resources = {topic: ConfigResource(ResourceType.TOPIC, topic) for topic in topics}
    found: dict[str, TopicFacts] = {}
    try:
        shapes = {topic: described[topic].result(ADMIN_SECONDS_MAX) for topic in topics}
        configs = admin.describe_configs(list(resources.values()), request_timeout=ADMIN_SECONDS_MAX)
        for topic, shape in shapes.items():
            config = configs[resources[topic]].result(ADMIN_SECONDS_MAX)
            found[topic] = TopicFacts(
                str(shape.topic_id), len(shape.partitions), int(config["max.message.bytes"].value)
            )
    except (KafkaException, TimeoutError) as error:
        raise kafka_failure(error) from error
    return found


def topic_id(admin: AdminClient, topic: str) -> str:
    """Return the id of a topic; raises as ``describe_topics``."""
    try:
        described = admin.describe_topics(TopicCollection([topic]), request_timeout=ADMIN_SECONDS_MAX)
        return str(described[topic].result(ADMIN_SECONDS_MAX).topic_id)
    except (KafkaException, TimeoutError) as error:
        raise kafka_failure(error) from error


def kafka_failure(error: BaseException) -> Failure:
    """Return the failure that an error of the client means."""
    inner = error.args[0] if isinstance(error, KafkaException) and error.args else None
    code = inner.code() if isinstance(inner, KafkaError) else None
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):  # noqa: SLF001
        return Misconfigured("topic_missing", str(inner))
    if code in REFUSALS:
        return Misconfigured("broker_refused", str(inner))
    return Unavailable("broker_unavailable", str(inner or error) or "Kafka did not answer in time")
