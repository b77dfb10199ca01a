"""librdkafka's own opinion on properties, in terms of our settings."""

from __future__ import annotations

import pytest

from onceflow.kafka_probe import probe_faults
from onceflow.settings_model import BridgeSettings, KafkaSettings, Settings
from onceflow.settings_sources import Given, Origin


def faults(
    properties: dict[str, str],
    *,
    consumer: dict[str, str] | None = None,
    producer: dict[str, str] | None = None,
    bridge: BridgeSettings | None = None,
) -> list[str]:
    kafka = KafkaSettings(properties=properties, consumer=consumer or {}, producer=producer or {})
    names = [
        *properties,
        *(f"consumer.{name}" for name in consumer or {}),
        *(f"producer.{name}" for name in producer or {}),
    ]
    settings = Settings(kafka=kafka, bridge=bridge or BridgeSettings())
    return probe_faults(settings, {f"kafka.{name}": Given("", Origin("flag", "f")) for name in names})


def test_good_properties_need_no_broker() -> None:
    assert faults({"bootstrap.servers": "127.0.0.1:9", "linger.ms": "5"}, consumer={"fetch.min.bytes": "1"}) == []


def test_each_bad_property_is_named() -> None:
    found = faults(
        {"sasl.pasword": "CANARY", "zzz": "1"}, consumer={"fetch.min.bytes": "-1"}, producer={"compression.type": "rar"}
    )
    assert found[0] == "kafka.sasl.pasword (flag f): is not a property of librdkafka; did you mean sasl.password?"
    assert found[1] == "kafka.zzz (flag f): is not a property of librdkafka"
    assert found[2].startswith("kafka.consumer.fetch.min.bytes (flag f): ")
    assert 'Invalid value "rar"' in found[3]
    assert "CANARY" not in str(found)


def test_a_combination_that_cannot_work_is_told_once() -> None:
    (fault,) = faults({"security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-512"})
    assert fault == "[kafka]: sasl.username and sasl.password must be set"
    (missing,) = faults({"security.protocol": "ssl", "ssl.ca.location": "/does/not/exist"})
    assert "ssl.ca.location failed" in missing


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("linger.ms", "20000", "`message.timeout.ms` must be greater than `linger.ms`"),
        ("retries", "0", "`retries` must be set >= 1 when `enable.idempotence` is true"),
        ("session.timeout.ms", "1000000", "`max.poll.interval.ms`must be >= `session.timeout.ms`"),
    ],
)
def test_what_does_not_fit_our_own_properties_is_told_too(name: str, value: str, said: str) -> None:
    assert faults({name: value}) == [f"[kafka]: {said}"]


def test_a_deadline_of_the_bridge_decides_how_long_a_record_may_linger() -> None:
    assert faults({"linger.ms": "2000"}) == []
    (fault,) = faults({"linger.ms": "2000"}, bridge=BridgeSettings(answer_deadline_seconds=2))
    assert "must be greater than `linger.ms`" in fault
