"""Asks the broker how long topics keep their records.

Rule: what is not known is not guessed: a topic that is not there, or that we may not ask about, is a failure, and nothing is
deleted meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka.admin import ConfigResource

from onceflow_processor.relay.kafka_clients import Refusals, broker_failures, open_admin
from onceflow_processor.retention.needs import TopicAge, topic_age

ASK_SECONDS_MAX: Final = 10.0


def read_topic_ages(kafka: Mapping[str, object], topics: Sequence[str], *, refusals: Refusals) -> dict[str, TopicAge]:
    """Return how long each topic keeps its records.

    Args:
        kafka: the operator's librdkafka properties.
        topics: their names.
        refusals: told of refused credentials.

    Raises:
        Unavailable: the broker did not answer, or a topic is not there yet.
        Misconfigured: ``broker_refused``: the right DESCRIBE_CONFIGS is missing.
    """
    admin = open_admin(kafka, refusals=refusals)
    found = {}
    try:
        resources = {name: ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics}
        answers = admin.describe_configs(list(resources.values()), request_timeout=ASK_SECONDS_MAX)
        for name, resource in resources.items():
            with broker_failures(f"asking how long topic {name} keeps its records"):
                config = answers[resource].result(ASK_SECONDS_MAX)
            found[name] = topic_age(
                name, retention_ms=int(config["retention.ms"].value), cleanup_policy=config["cleanup.policy"].value
            )
        return found
    finally:
        # See TopicTail: left to the garbage collector it could end inside its own callback thread.
        del admin
