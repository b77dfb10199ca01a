"""Lets librdkafka read the Kafka properties before a service does, without talking to any broker.

Rule: what exists and what fits together is librdkafka's to say; here its words become faults that name our settings.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

from onceflow.kafka_settings import is_secret_property, likely_property
from onceflow.redaction import redacted
from onceflow.settings_model import Settings
from onceflow.settings_sources import Given
from onceflow_processor.kafka_client import consumer_properties
from onceflow_processor.relay import kafka_clients as relay_clients
from onceflow_producer import kafka_properties as bridge_clients
from onceflow_producer.sizes import producer_bytes

BROKERS = "bootstrap.servers"
_NAME = "onceflow.probe"
_WHOLE = "Failed to create"
_silent = logging.getLogger("onceflow.kafka_probe")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


def probe_faults(settings: Settings, given: Mapping[str, Given]) -> list[str]:
    """Return what librdkafka would refuse: each property by itself, then, when all are fine, their combination.

    The combination is that of the clients of the services, which adds what onceflow sets itself.

    Args:
        settings: with the properties by role.
        given: the raw values, for their origins.
    """
    kafka = settings.kafka
    tables = {"": kafka.properties, "consumer.": kafka.consumer, "producer.": kafka.producer}
    faults: list[str] = []
    for role, properties in tables.items():
        for name, value in properties.items():
            said = _refusal({name: value}, consumer=role == "consumer.")
            if said is not None and not said.startswith(_WHOLE):
                origin = given[f"kafka.{role}{name}"].origin
                faults.append(f"kafka.{role}{name} ({origin}): {_plain(said, name)}")
    if faults:
        return faults
    whole = [_refusal(one, consumer="group.id" in one) for one in _clients(settings)]
    return [f"[kafka]: {text}" for text in dict.fromkeys(_plain(said, "") for said in whole if said is not None)]


def _clients(settings: Settings) -> tuple[dict[str, Any], ...]:
    """Return the properties of the clients that the services make; ``classic`` is the stricter group protocol."""
    producer, deadline = settings.kafka.for_producer(), settings.bridge.answer_deadline_seconds
    bytes_max = producer_bytes(settings.bridge.body_bytes_max, None)
    timeout_ms = bridge_clients.message_timeout_ms(deadline)
    return (
        bridge_clients.producer_properties(producer, record_bytes_max=bytes_max, message_timeout_ms=timeout_ms),
        relay_clients.producer_properties(producer, transactional_id=_NAME, record_bytes_max=None),
        consumer_properties(settings.kafka.for_consumer(), group=_NAME, protocol="classic"),
    )


def _refusal(properties: Mapping[str, object], *, consumer: bool) -> str | None:
    """Return what the client says against these properties; without brokers it connects to nobody."""
    offline: dict[str, Any] = {name: value for name, value in properties.items() if name != BROKERS}
    try:
        if consumer:
            Consumer({"group.id": _NAME, **offline}, logger=_silent).close()
        else:
            Producer(offline, logger=_silent)
    except KafkaException as error:
        return str(error.args[0].str())
    except (TypeError, ValueError) as error:
        return str(error)
    return None


def _plain(said: str, name: str) -> str:
    if "No such configuration property" in said:
        likely = likely_property(name)
        return "is not a property of librdkafka" + (f"; did you mean {likely}?" if likely else "")
    if name and is_secret_property(name):
        return "is refused by librdkafka"
    text = said.partition(": ")[2] if said.startswith(_WHOLE) else said
    return redacted(text.strip())
