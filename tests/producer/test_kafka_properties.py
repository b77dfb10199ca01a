"""The producer's properties: what is ours and what is the operator's."""

from __future__ import annotations

import pytest

from onceflow_producer.kafka_properties import producer_properties
from onceflow_schemas.failure import Misconfigured


def merged(kafka: dict[str, object]) -> dict[str, object]:
    return producer_properties(kafka, record_bytes_max=1_048_588, message_timeout_ms=6_000)


def test_what_an_acknowledgement_means() -> None:
    found = merged({"bootstrap.servers": "x:1"})
    assert found["acks"] == "all"
    assert found["enable.idempotence"] is True
    assert found["partitioner"] == "murmur2_random"
    assert found["allow.auto.create.topics"] is False
    assert found["message.timeout.ms"] == 6_000
    assert found["message.max.bytes"] == 1_048_588
    assert found["batch.size"] == 1_000_000


def test_a_batch_is_never_larger_than_a_record_may_be() -> None:
    found = producer_properties({}, record_bytes_max=5_000, message_timeout_ms=1)
    assert found["batch.size"] == found["message.max.bytes"] == 5_000


def test_the_operator_may_tune_the_rest() -> None:
    found = merged({"linger.ms": "5", "compression.type": "zstd", "client.id": "a", "acks": "-1"})
    assert (found["linger.ms"], found["compression.type"], found["client.id"]) == ("5", "zstd", "a")
    assert found["acks"] == "all"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acks", "1"),
        ("acks", 0),
        ("request.required.acks", "1"),
        ("enable.idempotence", "false"),
        ("enable.idempotence", False),
        ("partitioner", "consistent_random"),
        ("allow.auto.create.topics", True),
        ("message.timeout.ms", 300_000),
        ("message.max.bytes", 1),
        ("batch.size", 1),
        ("transactional.id", "x"),
    ],
)
def test_what_weakens_it_is_refused(name: str, value: object) -> None:
    with pytest.raises(Misconfigured, match=name.replace(".", r"\.")) as refused:
        merged({name: value})
    assert refused.value.code == "settings_invalid"


def test_all_faults_at_once() -> None:
    with pytest.raises(Misconfigured) as refused:
        merged({"acks": "1", "batch.size": 1})
    assert len(refused.value.faults) == 2
