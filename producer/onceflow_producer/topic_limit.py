"""A topic's own size limit, asked from the broker.

Rule: not being allowed to ask is no fault; the limit is then unknown and said to be.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from onceflow_producer.producer_handle import KAFKA_LOGGER

TIMEOUT_SECONDS = 3.0
LIMIT_NAME = "max.message.bytes"
LOG_LEVEL = 4
"""Warnings and worse (syslog's numbers): this client lives for one question, its coming and going is no news."""

_log = structlog.get_logger("onceflow.topic_limit")


def read_topic_bytes(kafka: Mapping[str, object], topic: str) -> int | None:
    """Return ``max.message.bytes`` of the topic, None when it cannot be read.

    Args:
        kafka: the operator's librdkafka properties.
        topic: the topic's name.
    """
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    properties: dict[str, Any] = {**kafka, "client.id": "onceflow-limits", "log_level": LOG_LEVEL}
    client = AdminClient(properties, logger=logging.getLogger(KAFKA_LOGGER))
    try:
        pending = client.describe_configs([resource], request_timeout=TIMEOUT_SECONDS)
        entries = pending[resource].result(timeout=TIMEOUT_SECONDS)
        return int(entries[LIMIT_NAME].value)
    except (KafkaException, TimeoutError, KeyError, TypeError, ValueError) as failure:
        # What the client said while it was asked waits in it until it is polled.
        client.poll(0)
        _log.warning("topic_limit_unknown", topic=topic, reason=type(failure).__name__)
        return None
    finally:
        # An answer that is an error refers to this frame, and the frame to the answer: left to the garbage collector, which runs
        # in any thread, the client could end inside its own callback thread, and librdkafka ends the whole process then.
        del client
